// What the command says where a GPU's memory runs out. On an imitated GPU, whose memory can be made small.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/io/npy.h"
#include "stepnet/device.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::gpu_memory_command_test {
namespace {

class GpuMemoryCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device_offered(DeviceKind::cuda) || !std::getenv("STEPNET_EMULATED_GPUS"))
      GTEST_SKIP() << "no GPU is imitated";
    limit("8388608");
  }
  void TearDown() override { unsetenv("STEPNET_EMULATED_BYTES"); }

  static void limit(const char* bytes) { setenv("STEPNET_EMULATED_BYTES", bytes, 1); }

  static void expect_sentences(const std::string& text) {
    for (const char* part : {"cuda:0: out of memory: ", " bytes were asked for, ", " are free, ",
                             " are live here, the peak was ", " by stepnet estimate", "fix use a smaller batch"})
      EXPECT_NE(text.find(part), text.npos) << part << " is not in " << text;
  }

  std::string written(const std::string& net) {
    write_all(folder_.file("net.pbtxt"), net);
    return folder_.file("net.pbtxt");
  }

  TempFolder folder_;
};

const std::string kModel = source_path("tools/examples/char_lstm.pbtxt");

TEST_F(GpuMemoryCommand, OfARun) {
  const std::string net = written(R"(name: "wide" external_input: "X" external_output: "Y"
    op { type: "Tanh" input: "X" output: "h" } op { type: "Exp" input: "h" output: "Y" })");
  write_npy(folder_.file("x.npy"), Tensor::zeros(DType::float32, {1000, 1000}));
  const std::string call = "run " + net + " --device cuda --feed X=" + folder_.file("x.npy");
  std::string text = expect_command(call, 2, "error");  // nothing has room, not even what is fed
  expect_sentences(text);
  EXPECT_NE(text.find(" of 8388608 are free, 0 are live here"), text.npos) << text;
  EXPECT_NE(text.find("12000768 bytes (12.00 MB) by stepnet estimate"), text.npos) << text;
  limit("25000000");
  expect_command(call, 0, "");
  write_npy(folder_.file("x.npy"), Tensor::zeros(DType::float32, {2000, 1000}));
  text = expect_command(call, 2, "error: Exp: cuda:0: out of memory: 8000000 bytes were asked for");
  expect_sentences(text);
  EXPECT_NE(text.find("24000000 bytes (24.00 MB) by stepnet estimate"), text.npos) << text;
}

TEST_F(GpuMemoryCommand, OfATrainingRun) {
  expect_sentences(expect_command(
      "train " + kModel + " --text " + source_path("LICENSE") + " --iterations 1 --device cuda --batch 64", 2,
      "error"));
}

TEST_F(GpuMemoryCommand, OfABenchmark) {
  expect_sentences(expect_command("bench " + kModel + " --train --device cuda --batch 64", 2, "error"));
}

// Texts are drawn where the host reads the scores.
TEST_F(GpuMemoryCommand, SamplesWhatWasTrainedThere) {
  limit("268435456");
  const std::string run = folder_.file("run");
  expect_command("train " + kModel + " --text " + source_path("LICENSE") +
                     " --iterations 1 --device cuda --batch 2 --timesteps 4 --out " + run,
                 0, "");
  expect_command("sample --out " + run + " --length 3 --seed 1", 0, "");
}

// A machine without a GPU is one that imitates none.
TEST_F(GpuMemoryCommand, WithoutAGpu) {
  setenv("STEPNET_EMULATED_GPUS", "0", 1);
  for (const std::string command : {"run ", "bench "})
    expect_command(command + kModel + " --device cuda", 2, "there is no CUDA device: this program was built without");
  expect_command("gradcheck Tanh --device cuda", 2,
                 "there is no device cuda:0: this machine has 0 usable CUDA devices");
  setenv("STEPNET_EMULATED_GPUS", "2", 1);
}

TEST_F(GpuMemoryCommand, OfADeviceBeyondTheMachines) {
  const std::string net = written(R"(device_option { device_type: 1 cuda_gpu_id: 7 }
    op { type: "ConstantFill" output: "Y" arg { name: "shape" ints: 3 } })");
  expect_command("run " + net + " --device cuda", 2,
                 "there is no device cuda:7: this machine has 2 usable CUDA devices\n");
}

}  // namespace
}  // namespace stepnet::testing::gpu_memory_command_test
