// `stepnet bench` as a user starts it. On the GPU where there is one, or one is imitated.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/io/npy.h"
#include "stepnet/op_spec.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::bench_command_test {
namespace {

const std::string kLstm = source_path("tools/examples/lstm.pbtxt");
const std::string kModel = source_path("tools/examples/char_lstm.pbtxt");
const std::string kShapes =
    " --feed x=float[7,2,3] --feed h0=[1,2,4] --feed c0=[1,2,4] --parameter W_x=[16,3] --parameter b_x=[16]"
    " --parameter W_h=[16,4] --parameter b_h=[16]";

// The number behind the name in a JSON object.
double number(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\": ");
  if (at == json.npos) {
    ADD_FAILURE() << name << " is not in " << json;
    return 0;
  }
  return std::strtod(json.c_str() + at + name.size() + 4, nullptr);
}

TEST(BenchCommand, TimesAForwardRun) {
  const std::string text = expect_command("bench " + kLstm + kShapes + " --device cpu --iterations 4 --warm-up 2", 0,
                                          "lstm, forward on cpu");
  for (const char* part : {"ms of 4 runs behind 2", "min ", "peak ", "FLOPs ", " a second"})
    EXPECT_NE(text.find(part), text.npos) << part << " is not in " << text;
}

TEST(BenchCommand, TellsNumbersAsJson) {
  const std::string json = expect_command(
      "bench " + kLstm + kShapes + " --device cpu --iterations 3 --train --optimizer sgd --json --threads 1", 0, "{");
  EXPECT_EQ(number(json, "iterations"), 3);
  EXPECT_GT(number(json, "median_ms"), 0);
  EXPECT_LE(number(json, "min_ms"), number(json, "median_ms"));
  EXPECT_EQ(number(json, "wall_median_ms"), number(json, "median_ms"));
  EXPECT_NEAR(number(json, "flops_per_second"), number(json, "flops") / number(json, "median_ms") * 1e3,
              1e-4 * number(json, "flops_per_second"));
  EXPECT_NE(json.find("\"training\": true"), json.npos);
  const std::string estimate = expect_command(
      "estimate " + kLstm + kShapes + " --train --optimizer sgd --json --threads 1", 0, "\"product_flops\"");
  EXPECT_EQ(number(json, "flops"), number(estimate, "flops"));
  EXPECT_EQ(number(json, "bytes_moved"), number(estimate, "bytes_moved"));
  EXPECT_GT(number(json, "peak_bytes"), number(estimate, "between_runs"));
  EXPECT_LT(number(json, "peak_bytes"), 1.2 * number(estimate, "peak"));
}

TEST(BenchCommand, KeepsATrainingStepToABudget) {
  const std::string bench =
      "bench " + kModel + " --device cpu --train --batch 32 --timesteps 200 --iterations 1 --warm-up 1 --json";
  const std::string whole = expect_command(bench, 0, "{");
  const auto budget = static_cast<int64_t>(number(whole, "peak_bytes") * 0.8);
  const std::string less = expect_command(bench + fmt::format(" --memory-budget {}", budget), 0, "{");
  EXPECT_LE(number(less, "peak_bytes"), budget);
  EXPECT_GT(number(less, "flops"), number(whole, "flops"));
  expect_command(bench + " --memory-budget 1", 2, "a training step takes at least");
  expect_command("bench " + kModel + " --device cpu --memory-budget 1M", 2, "--memory-budget requires --train");
}

TEST(BenchCommand, OffloadsWhatATrainingStepKeeps) {
  const TempFolder folder;
  const std::string bench =
      "bench " + kModel + " --device cpu --train --batch 32 --timesteps 200 --iterations 1 --warm-up 1 --json";
  const std::string whole = expect_command(bench, 0, "{");
  const std::string less = expect_command(bench + " --offload " + folder.file("kept"), 0, "{");
  EXPECT_LT(number(less, "peak_bytes"), 0.8 * number(whole, "peak_bytes"));
}

// What it draws is its own, and gone before the first run.
TEST(BenchCommand, ThePeakIsTheNets) {
  const TempFolder folder;
  const std::string net = folder.file("sum.pbtxt");
  write_all(net, "op { type: 'SumElements' input: 'X' output: 'Y' }");
  const std::string json =
      expect_command("bench " + net + " --feed X=float[1000,1000] --device cpu --iterations 3 --json", 0, "{");
  EXPECT_LT(number(json, "peak_bytes"), 4.1e6);
}

TEST(BenchCommand, TimesAModelAndValuesFromFiles) {
  expect_command("bench " + kModel + " --device cpu --train --batch 2 --timesteps 3 --iterations 2", 0,
                 "a training step on cpu");
  const TempFolder folder;
  write_npy(folder.file("x.npy"), Tensor::zeros(DType::float32, {5, 2, 3}));
  const std::string json = expect_command("bench " + kLstm + kShapes.substr(kShapes.find(" --feed h0")) + " --feed x=" +
                                              folder.file("x.npy") + " --device cpu --iterations 1 --json",
                                          0, "{");
  EXPECT_EQ(number(json, "iterations"), 1);
}

TEST(BenchCommand, TimesOnAGpu) {
  if (!device_offered(DeviceKind::cuda)) {
    expect_command("bench " + kLstm + kShapes + " --device cuda", 2, "there is no CUDA device");
    return;
  }
  const std::string call = "bench " + kLstm + kShapes + " --device cuda --iterations 3 --train --tf32";
  expect_command(call, 0, "lstm, a training step on cuda:0, by the device's events");
  const std::string json = expect_command(call + " --json", 0, "\"device\": \"cuda:0\"");
  EXPECT_GT(number(json, "median_ms"), 0);
  EXPECT_LE(number(json, "median_ms"), number(json, "wall_median_ms") * 1.01 + 0.1);
  EXPECT_GT(number(json, "peak_bytes"), 0);
}

TEST(BenchCommand, SaysWhatIsWrong) {
  expect_command("bench " + kLstm + " --feed x=float[7,2,3] --device cpu", 2, "h0, c0, W_x, b_x, W_h, b_h");
  expect_command("bench " + kLstm + kShapes + " --iterations 0", 2, "must be at least 1");
  expect_command("bench " + kLstm + kShapes + " --device cpu --tf32", 2, "--tf32 is for a GPU");
  expect_command("bench " + kLstm + kShapes + " --feed z=none.npy --device cpu", 2, "none.npy");
  expect_command("bench " + kLstm + kShapes + " --device cpu --train --loss nothing", 2, "nothing");
  expect_command("bench nothing.pbtxt", 2, "nothing.pbtxt");
}

TEST(Tf32, IsForGpusAlone) {
  expect_command("run " + kLstm + " --device cpu --tf32", 2, "--tf32 is for a GPU, and this runs on the CPU");
  expect_command("train " + kModel + " --text " + kModel + " --iterations 1 --device cpu --tf32", 2,
                 "--tf32 is for a GPU");
  expect_command("gradcheck Tanh --tf32", 2, "--tf32 is for a GPU");
  if (device_offered(DeviceKind::cuda)) expect_command("gradcheck MatMul --device cuda --tf32", 0, "right");
}

}  // namespace
}  // namespace stepnet::testing::bench_command_test
