// Where commands write: a standard output that is full, limits of files, and a folder that another run has.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::output_command_test {
namespace {

using testing::Command;
using testing::expect_command;
using testing::expect_contains;
using testing::Outcome;
using testing::read_all;
using testing::words;
using testing::write_all;

class CommandOutput : public ::testing::Test {
 protected:
  CommandOutput() {
    write_all(net_, testing::tiny_net_text());
    write_all(text_, testing::tiny_text());
  }
  // By a shell; "stepnet" stands for the command.
  std::pair<int, std::string> shell(std::string line) const {
    const std::string command = command_path();
    for (size_t at = 0; (at = line.find("stepnet ", at)) != line.npos; at += command.size())
      line.replace(at, 7, command);
    line = fmt::format("cd {} && {{ {}; }} 2>{}", source_path("tests/data"), line, err_);
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_all(err_)};
  }
  std::string train(const std::string& out, const std::string& more) const {
    return "train " + net_ + " --threads 1 --text " + text_ + " --out " + folder_.file(out) + " " + more;
  }
  void wait_for(const std::string& file, Command& command) const {
    while (!std::filesystem::exists(file) && command.running())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  testing::TempFolder folder_;
  std::string net_ = folder_.file("tiny.pbtxt"), text_ = folder_.file("text"), err_ = folder_.file("err");
};

TEST_F(CommandOutput, AFullStandardOutputIsAnErrorOfEveryCommand) {
  expect_command(train("run", "--iterations 2"), 0, "trained");
  for (const std::string& line :
       {std::string("--help"), std::string("run --help"), std::string("ops"), std::string("ops Relu"),
        std::string("check add.pbtxt"), std::string("expand add.pbtxt"), std::string("draw add.pbtxt"),
        "estimate " + net_ + " --train", "estimate " + net_ + " --train --json", std::string("gradcheck Relu"),
        "run " + net_ + " --help", train("other", "--iterations 2"), train("third", "--iterations 2 --profile"),
        "sample --out " + folder_.file("run") + " --length 5", "bench " + net_ + " --help"}) {
    const auto [code, err] = shell("stepnet " + line + " >/dev/full");
    EXPECT_EQ(code, 2) << line;
    expect_contains(err, "error: cannot write to ");
    for (const char* made : {"other", "third"}) std::filesystem::remove_all(folder_.file(made));
    EXPECT_EQ(shell("stepnet " + line + " | cat >/dev/null").second.find("error:"), std::string::npos) << line;
    for (const char* made : {"other", "third"}) std::filesystem::remove_all(folder_.file(made));
  }
  EXPECT_EQ(shell("stepnet ops | head -c 1 >/dev/null").second, "");  // who reads it has enough
}

TEST_F(CommandOutput, WhatANetPrintsAndWhatIsFetched) {
  const std::string net = folder_.file("print.pbtxt");
  write_all(net,
            "name: \"p\" op { type: \"ConstantFill\" output: \"x\" arg { name: \"shape\" ints: 3 } arg { name: "
            "\"value\" f: 1 } } op { type: \"Print\" input: \"x\" }");
  EXPECT_EQ(shell("stepnet run " + net + " >/dev/full").first, 2);
  EXPECT_EQ(shell("stepnet run " + net + " --fetch x >/dev/full").first, 2);
  EXPECT_EQ(shell("stepnet run " + net + " --fetch x >/dev/null").first, 0);
}

// The metrics come to the limit first; what has been trained until then is saved.
TEST_F(CommandOutput, AFileSizeLimitIsAnErrorAndTheRunIsSaved) {
  const auto [code, err] =
      shell("ulimit -f 100; exec stepnet " + train("run", "--iterations 100000 --validate-every 90000 --holdout 0"));
  EXPECT_EQ(code, 2) << err;
  expect_contains(err,
                  "error: cannot write the metrics file " + folder_.file("run") + "/metrics.jsonl: File too large\n");
  expect_contains(err, "a run whose last checkpoint is that of iteration ");
  expect_command(train("run", "--resume --metrics " + folder_.file("more") + " --quiet --iterations 2000"), 0,
                 "trained");
}

TEST_F(CommandOutput, TwoRunsInOneFolder) {
  const std::string out = folder_.file("run");
  const std::string how = "--iterations 1000000 --validate-every 50";
  Command first(words(train("run", how)));
  wait_for(out + "/best/best.ckpt", first);
  wait_for(out + "/latest", first);
  for (const char* more : {"--resume", "--iterations 5"}) {
    const Outcome second = testing::stepnet(train("run", more));
    EXPECT_EQ(second.code, 2);
    expect_contains(second.err, "error: another run, process ");
    expect_contains(second.err, ", is writing to the folder \"" + out + "\"\n  fix wait for its end, stop it (kill ");
  }
  expect_command("sample --length 3 --out " + out, 0, "");
  EXPECT_TRUE(first.running());
  first.send(SIGKILL);
  first.wait();
  const std::string latest = testing::read_all(out + "/latest");
  Command third(words(train("run", "--resume")));
  while (testing::read_all(out + "/latest") == latest && third.running())  // until it trains
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  third.send(SIGTERM);
  const Outcome outcome = third.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_contains(outcome.err, "going on after iteration ");
  EXPECT_FALSE(std::filesystem::exists(out + "/lock"));
}

TEST_F(CommandOutput, AKilledRunLeavesNoOffloadedValues) {
  write_all(text_, testing::tiny_text(20000));
  const std::string values = folder_.file("values"), log = folder_.file("log");
  Command command(words("train " + net_ + " --threads 1 --iterations 100000 --batch 64 --timesteps 64 --text " + text_ +
                        " --offload " + values + " --metrics " + log));
  wait_for(log, command);
  int most = 0;
  for (int i = 0; i < 100 && command.running(); ++i) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(values)) files += entry.exists() ? 1 : 0;
    most = std::max(most, files);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  command.send(SIGKILL);
  command.wait();
  EXPECT_LE(most, 1);  // one that has just been opened
  EXPECT_LE(std::distance(std::filesystem::directory_iterator(values), {}), 1);
}

}  // namespace
}  // namespace stepnet::output_command_test
