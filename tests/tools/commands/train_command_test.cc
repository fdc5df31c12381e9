// `stepnet train` and `stepnet sample` end to end: what they print and write, and that a run which is killed or
// interrupted goes on to the same bits.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "tests/core/errors.h"
#include "tests/recurrent/tiny_model.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::train_command_test {
namespace {

using testing::Command;
using testing::expect_command;
using testing::Outcome;
using testing::read_all;
using testing::saved_bytes;
using testing::write_all;

class TrainCommandTest : public ::testing::Test {
 protected:
  TrainCommandTest() {
    write_all(net_, testing::tiny_net_text());
    write_all(text_, testing::tiny_text());
  }
  std::vector<std::string> train(const std::string& out, const std::string& more) const {
    std::vector<std::string> all = testing::words("train --threads 1 --lr 0.02 --text");
    all.insert(all.end(), {text_, net_});
    if (!out.empty()) all.insert(all.end(), {"--out", folder_.file(out)});
    const std::vector<std::string> others = testing::words(more);
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }
  std::string sample(const std::string& out, const std::string& more) const {
    const Outcome outcome = testing::stepnet("sample --out " + folder_.file(out) + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }

  testing::TempFolder folder_;
  std::string net_ = folder_.file("tiny.pbtxt"), text_ = folder_.file("text");
};

// The lines of metrics.jsonl without the times in them.
std::vector<std::string> metrics_of(const std::string& folder) {
  std::istringstream in(read_all(folder + "/metrics.jsonl"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line.substr(0, line.find(",\"chars_per_second\"")));
  return lines;
}

std::vector<std::string> unfinished_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().string().find(".part-") != std::string::npos) files.push_back(entry.path());
  return files;
}

void expect_same_runs(const std::string& folder, const std::string& expected) {
  EXPECT_FALSE(saved_bytes(expected).empty());
  EXPECT_TRUE(saved_bytes(folder) == saved_bytes(expected));
  EXPECT_TRUE(saved_bytes(folder + "/best") == saved_bytes(expected + "/best"));
  EXPECT_TRUE(read_all(folder + "/parameters.minidb") == read_all(expected + "/parameters.minidb"));
  EXPECT_EQ(metrics_of(folder), metrics_of(expected));
  EXPECT_EQ(unfinished_files(folder), std::vector<std::string>());
}

// The bar is drawn over itself by the terminal's own codes, which no text from outside gets through.
TEST_F(TrainCommandTest, DrawsItsProgressOnATerminal) {
  const std::string shown = testing::on_terminal(train("\033[2Jrun", "--iterations 20"));
  EXPECT_NE(shown.find("\r\033[K["), shown.npos) << shown;
  EXPECT_EQ(shown.find("\\x0d"), shown.npos) << shown;
  EXPECT_EQ(shown.find("\\x1b[K"), shown.npos) << shown;
  EXPECT_EQ(shown.find("\033[2J"), shown.npos) << shown;
  testing::expect_contains(shown, "trained 20 iterations in ");
}

TEST_F(TrainCommandTest, TrainsWithAnOperatorOfAPlugin) {
  std::string net = testing::tiny_net_text();
  const std::string gates = R"(output: "gates" })";
  ASSERT_NE(net.find(gates), net.npos);
  net.replace(net.find(gates), gates.size(),
              R"(output: "sums" } op { type: "ScaleBy" input: "sums" output: "gates" arg { name: "factor" f: 0.9 } })");
  write_all(net_, net);
  expect_command(train("without", "--iterations 4"), 2, "ScaleBy");
  std::vector<std::string> with = train("run", "--iterations 40 --validate-every 20");
  with.insert(with.begin(), {"--plugin", plugin_path()});
  testing::expect_contains(expect_command(with, 0, "trained 40 iterations in "), "the best so far\n");
}

TEST_F(TrainCommandTest, TrainsAndSamples) {
  const std::string printed = expect_command(train("run", "--iterations 60 --validate-every 30"), 0,
                                             "2576 parameters, 18 different bytes, 2859 bytes to train on, 150 held "
                                             "out, batch 4, 7 timesteps\n");
  testing::expect_contains(printed, "iteration 30: ");
  testing::expect_contains(printed, " bits/char on the held-out part, the best so far\n");
  testing::expect_contains(printed, "trained 60 iterations in ");
  testing::expect_contains(printed, "to see text from it: stepnet sample --out " + folder_.file("run") + "\n");
  for (const char* file :
       {"iteration-60.ckpt", "iteration-30.ckpt", "latest", "best/best.ckpt", "metrics.jsonl", "parameters.minidb"})
    EXPECT_TRUE(std::filesystem::is_regular_file(folder_.file("run") + "/" + file)) << file;
  EXPECT_EQ(metrics_of(folder_.file("run")).size(), 62u);

  const std::string text = sample("run", "--length 40 --seed 7");
  EXPECT_EQ(text.size(), 41u) << text;
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(sample("run", "--length 40 --seed 7"), text);
  EXPECT_NE(sample("run", "--length 40 --seed 8"), text);
  EXPECT_EQ(sample("run", "--length 40 --seed 7 --threads 1 --prompt the"), sample("run",
                                                                                   "--length 40 --seed 7 "
                                                                                   "--prompt the"));
  EXPECT_TRUE(sample("run", "--length 3 --prompt the").starts_with("the"));
  EXPECT_EQ(sample("run", "--length 0 --prompt the"), "the\n");
  const std::string best = "sample --length 40 --seed 7 --checkpoint " + folder_.file("run") + "/best/best.ckpt";
  EXPECT_EQ(testing::stepnet(best).out, text);
  EXPECT_EQ(testing::stepnet(best + " " + net_).out, text);
}

TEST_F(TrainCommandTest, QuietPrintsTheLastLinesOnly) {
  const Outcome outcome = testing::stepnet(train("", "--iterations 2 --quiet"));
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(outcome.out.starts_with("trained 2 iterations in "));
}

TEST_F(TrainCommandTest, TakesFractionsOfAUnitAsBudget) {
  expect_command(train("", "--iterations 2 --memory-budget 24.5M"), 0, "trained 2 iterations in ");
}

TEST_F(TrainCommandTest, ProfilesARun) {
  const std::string printed = expect_command(train("", "--iterations 2 --profile"), 0, "RecurrentNetworkGradient");
  testing::expect_contains(printed, "kept for backward");
}

// Where the metrics are written, and how much there is: it changes when a run is under way.
std::pair<ino_t, off_t> written(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return {0, 0};
  return {info.st_ino, info.st_size};
}

void wait_for_change(Command& command, const std::string& file, std::pair<ino_t, off_t> before) {
  while (written(file) == before && command.running()) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

// A checkpoint is there before the file `latest` is.
bool holds_run(const std::string& folder) {
  if (!std::filesystem::exists(folder)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".ckpt") return true;
  return false;
}

TEST_F(TrainCommandTest, AKilledRunGoesOnToTheSameBits) {
  const std::string how = "--iterations 500 --checkpoint-every 15 --validate-every 35";
  expect_command(train("whole", how), 0, "trained 500 iterations");
  const std::string out = folder_.file("killed"), log = out + "/metrics.jsonl";
  // Microseconds. Every other kill counts from the start of the process, the others from when it trains.
  const int delays[] = {9000, 2500, 14000, 21000, 3000, 300, 31000, 7700, 11000, 42000, 5000, 16300};
  int killed = 0;
  bool from_start = true;
  for (const int delay : delays) {
    const auto before = written(log);
    Command command(train("killed", how + (holds_run(out) ? " --resume" : "")));
    if (!from_start) wait_for_change(command, log, before);
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    command.send(SIGKILL);
    const Outcome outcome = command.wait();
    killed += outcome.signal == SIGKILL ? 1 : 0;
    EXPECT_EQ(outcome.code, outcome.signal == 0 ? 0 : -1) << outcome.err;
    from_start = !from_start;
  }
  EXPECT_GE(killed, 3);
  expect_command(train("killed", how + (holds_run(out) ? " --resume" : "")), 0, "trained 500 iterations");
  expect_same_runs(out, folder_.file("whole"));
}

TEST_F(TrainCommandTest, WhatAKilledProcessLeftIsTidiedUp) {
  expect_command(train("run", "--iterations 4"), 0, "trained 4 iterations");
  const std::string out = folder_.file("run"), none = "99999999";  // above all process numbers
  for (const char* file : {"iteration-3.ckpt", "latest", "parameters.minidb", "best/best.ckpt", "metrics.jsonl"})
    write_all(out + "/" + file + ".part-" + none + "-0", "half");
  const std::string alive = out + "/latest.part-1-0", foreign = out + "/notes.part-" + none + "-x";
  write_all(alive, "half");
  write_all(foreign, "mine");
  expect_command(train("run", "--resume"), 0, "trained 4 iterations");
  EXPECT_EQ(unfinished_files(out).size(), 2u);
  EXPECT_TRUE(std::filesystem::exists(alive));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST_F(TrainCommandTest, ASignalFinishesTheIterationAndSaves) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string name = fmt::format("stopped-{}", signal), out = folder_.file(name);
    const std::string rare = " --validate-every 1000000 --checkpoint-every 1000000";
    Command command(train(name, "--iterations 1000000" + rare));
    wait_for_change(command, out + "/metrics.jsonl", {0, 0});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    command.send(signal);
    const Outcome outcome = command.wait();
    ASSERT_EQ(outcome.code, 0) << outcome.err;  // all is saved
    const size_t last = metrics_of(out).size();
    testing::expect_contains(outcome.out, fmt::format("stopped after iteration {} of 1000000\nto go on: ", last));
    EXPECT_TRUE(std::filesystem::exists(out + fmt::format("/iteration-{}.ckpt", last)));
    const std::string total = fmt::format("--iterations {}", last + 20);
    expect_command(train(name, total + " --resume"), 0, fmt::format("going on after iteration {}\n", last));
    expect_command(train("whole" + name, total + rare), 0, "trained");
    expect_same_runs(out, folder_.file("whole" + name));
  }
}

TEST_F(TrainCommandTest, AStoppedRunThatSavedNothingSaysSo) {
  const std::string log = folder_.file("log");
  Command command(train("", "--iterations 1000000 --metrics " + log));
  wait_for_change(command, log, {0, 0});
  command.send(SIGINT);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.code, 130);
  testing::expect_contains(outcome.err, "the result will not be kept: --out FOLDER keeps checkpoints");
  testing::expect_contains(outcome.out, "nothing was saved, because no folder was given by --out\n");
}

}  // namespace
}  // namespace stepnet::train_command_test
