// A plan of the kind that third parties wrote for the public format trains, unmodified, from the command line.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "core/io/blob_db.h"
#include "core/io/db.h"
#include "recurrent/train/text_corpus.h"
#include "tests/core/temp_folder.h"
#include "tools/source_path.h"

namespace stepnet::char_rnn_plan_test {
namespace {

using testing::TempFolder;

const std::string kPlan = source_path("tests/data/char_rnn_plan.pbtxt");

std::string some_text() {
  std::string text;
  for (int i = 0; text.size() < 20000; ++i)
    text += fmt::format("and the {} day was better than the {} night, ", i % 7, (i * 5) % 11);
  return text;
}

struct CommandRun {
  int status = -1;
  std::string output;
};

CommandRun run_in(const std::string& folder, const std::string& arguments) {
  const std::string command = fmt::format("cd '{}' && '{}' {} 2>&1", folder, command_path(), arguments);
  CommandRun run;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) run.output.append(buffer.data(), n);
  run.status = WEXITSTATUS(pclose(pipe));
  return run;
}

double loss_in(const std::string& output, const std::string& after) {
  const size_t line = output.find(after);
  if (line == output.npos) return NAN;
  const size_t value = output.find("loss = ", line);
  return value == output.npos ? NAN : std::stod(output.substr(value + 7));
}

TEST(CharRnnPlan, TrainsAndSavesItsParameters) {
  const TempFolder folder;
  write_text_db(some_text(), folder.file("train.lmdb"), {.width = 62});
  const CommandRun run = run_in(
      folder.path(), fmt::format("run '{}' --device cpu --iterations 60 --watch loss --every 20 --threads 1", kPlan));
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_NE(run.output.find("asks for a GPU"), run.output.npos) << run.output;
  const double early = loss_in(run.output, "iteration 20");
  const double late = loss_in(run.output, "iteration 60");
  EXPECT_LT(late, early - 0.2) << run.output;
  const auto cursor = open_db("lmdb", folder.file("parameters.lmdb"), DbMode::read)->cursor();
  std::vector<std::string> keys;
  for (; cursor->valid(); cursor->next()) keys.emplace_back(cursor->key());
  EXPECT_EQ(keys, (std::vector<std::string>{"LSTM/gates_t_b#%0", "LSTM/gates_t_w#%0", "LSTM/i2h_b#%0", "LSTM/i2h_w#%0",
                                            "LSTM/pred_b#%0", "LSTM/pred_w#%0"}));
}

TEST(CharRnnPlan, ParametersThatAreAlreadyThereAreSaidBeforeTraining) {
  const TempFolder folder;
  write_text_db(some_text(), folder.file("train.lmdb"), {.width = 62, .max_records = 2});
  write_text_db(some_text(), folder.file("parameters.lmdb"), {.width = 62, .max_records = 1});
  const CommandRun run = run_in(folder.path(), fmt::format("run '{}' --device cpu --watch loss --every 1", kPlan));
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.output.find("parameters.lmdb"), run.output.npos) << run.output;
  EXPECT_EQ(run.output.find("loss ="), run.output.npos) << run.output;
}

TEST(CharRnnPlan, PassesTheCheck) {
  const TempFolder folder;
  const CommandRun run = run_in(folder.path(), fmt::format("check '{}'", kPlan));
  EXPECT_EQ(run.status, 0) << run.output;
}

}  // namespace
}  // namespace stepnet::char_rnn_plan_test
