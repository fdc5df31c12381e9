// `stepnet estimate` as a user starts it.
#include "core/io/json.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace stepnet::testing::estimate_command_test {
namespace {

const std::string kLstm = source_path("tools/examples/lstm.pbtxt");
const std::string kModel = source_path("tools/examples/char_lstm.pbtxt");
const std::string kShapes =
    " --feed x=float[7,2,3] --feed h0=[1,2,4] --feed c0=[1,2,4] --parameter W_x=[16,3] --parameter b_x=[16]"
    " --parameter W_h=[16,4] --parameter b_h=[16]";

TEST(EstimateCommand, TellsOfAForwardRun) {
  const std::string text = expect_command("estimate " + kLstm + kShapes, 0, "RecurrentNetwork");
  EXPECT_NE(text.find("peak"), std::string::npos);
  EXPECT_EQ(text.find("backward"), std::string::npos);
}

TEST(EstimateCommand, TellsOfATrainingStepAndWhy) {
  const std::string text =
      expect_command("estimate " + kLstm + kShapes + " --train --optimizer sgd --why", 0, "RecurrentNetworkGradient");
  EXPECT_NE(text.find("read by the gradient of W_x by RecurrentNetwork (operator 0)"), std::string::npos) << text;
  EXPECT_NE(text.find("parameter gradients"), std::string::npos);
}

TEST(EstimateCommand, TrainsAModelWithItsOwnSizes) {
  expect_command("estimate " + kModel + " --train", 0, "Adam");
  expect_command("estimate " + kModel + " --train --device cuda --batch 3 --timesteps 5 --json", 0,
                 "\"device\": \"cuda\"");
  expect_command("estimate " + kModel, 0, "SoftmaxWithLoss");
}

// The buckets are those that training would have. Of a step that takes longer, more is hidden.
TEST(EstimateCommand, PlansMoreProcesses) {
  const std::string plan = "estimate " + kModel + " --train --ranks 6 --bandwidth 1.25 --latency 20";
  const std::string untimed = expect_command(plan, 0, "--step-time would tell");
  EXPECT_NE(untimed.find("scaling plan: 1.64 MB of gradients in 6 blocks, 1.25 GB/s, 20 us"), std::string::npos)
      << untimed;
  const std::string text = expect_command(plan + " --step-time 30", 0, "speed-up");
  for (const char* start : {"\n      1  none", "\n      2  ", "\n      4  ", "\n      6  "})
    EXPECT_NE(text.find(start), std::string::npos) << start << text;
  expect_command("estimate " + kModel + " --train --ranks 4096 --bandwidth 25 --latency 2 --step-time 50", 0, " 4096 ");
}

TEST(EstimateCommand, RefusesPlansWithoutFigures) {
  expect_command("estimate " + kModel + " --train --ranks 4 --latency 1", 2, "--bandwidth");
  expect_command("estimate " + kModel + " --ranks 4 --latency 1 --bandwidth 1", 2, "--train");
  expect_command("estimate " + kModel + " --train --ranks 0 --latency 1 --bandwidth 1", 2, "--ranks");
  expect_command("estimate " + kModel + " --train --ranks 2 --latency 1 --bandwidth 0", 2, "--bandwidth");
  expect_command("estimate " + kModel + " --train --ranks 2 --latency 1 --bandwidth 1 --json", 2, "--json");
}

TEST(EstimateCommand, WritesAPicture) {
  const TempFolder folder;
  const std::string path = folder.file("timeline.svg");
  expect_command("estimate " + kLstm + kShapes + " --train --plot " + path, 0, "peak");
  EXPECT_NE(read_all(path).find("<polygon"), std::string::npos);
}

// Names of blobs may be any bytes, JSON is UTF-8.
TEST(EstimateCommand, WritesJsonOfAnyName) {
  const TempFolder folder;
  write_all(folder.file("net.pbtxt"), "op { type: 'Tanh' input: 'X' output: 'a\\377z' }");
  const std::string json = expect_command("estimate " + folder.file("net.pbtxt") + " --feed X=float[2] --json", 0, "{");
  EXPECT_GT(json_integer(json, "peak"), 0) << json;
  EXPECT_NE(json.find("\"name\": \"a\xEF\xBF\xBDz\""), json.npos) << json;
}

// The parameters of torchvision's ResNet-18 with the running statistics of its 4,800 channels; a step of forward
// products.
TEST(EstimateCommand, KnowsResNet18) {
  constexpr int64_t kBatch = 4, kParameters = 11'689'512, kChannels = 4'800;
  int64_t products = 112 * 112 * 64 * 3 * 49;
  for (int64_t size = 56, channels = 64; channels <= 512; size /= 2, channels *= 2) {
    products += 3 * size * size * channels * channels * 9;
    const int64_t before = channels == 64 ? channels : channels / 2;
    products += size * size * channels * before * 9;
    if (before < channels) products += size * size * channels * before;
  }
  products += 512 * 1000;
  const std::string json = expect_command("estimate " + source_path("tools/examples/nets/resnet18.pbtxt") +
                                              " --feed images=float[4,3,224,224] --feed class=int32[4] --json",
                                          0, "{");
  EXPECT_EQ(json_integer(json, "product_flops"), 2 * kBatch * products);
  constexpr int64_t kBlock = 64;  // bytes, of which there are whole ones
  const int64_t bytes = (4 * (kParameters + 2 * kChannels) + kBlock - 1) / kBlock * kBlock;
  EXPECT_NE(json.find(fmt::format("\"parameters\": {},", bytes)), json.npos) << json;
}

// A training step of GPT-2 small: three products of each weight and of each pair of timesteps, masked ones too. The
// embedding is a weight of the last product alone.
TEST(EstimateCommand, KnowsGpt2) {
  constexpr int64_t kBatch = 2, kSteps = 256, kLayers = 12, kUnits = 768, kTokens = 50'257, kParameters = 124'439'808;
  const int64_t weights = kLayers * 12 * kUnits * kUnits + kTokens * kUnits;
  const int64_t products = kBatch * kSteps * (weights + kLayers * 2 * kSteps * kUnits);
  const std::string json = expect_command("estimate " + source_path("tools/examples/nets/gpt2.pbtxt") +
                                              " --train --feed tokens=int32[2,256] --feed next=int32[2,256] --json",
                                          0, "{");
  EXPECT_EQ(json_integer(json, "product_flops"), 3 * 2 * products);
  EXPECT_NE(json.find(fmt::format("\"parameters\": {},", 4 * kParameters)), json.npos) << json;
}

TEST(EstimateCommand, SaysWhatIsWrong) {
  for (const char* budget : {"30.5M", "30.5MB", "0.03GiB", "30500000"})
    expect_command("estimate " + kModel + " --train --memory-budget " + budget, 0, "as stepnet train runs it");
  for (const char* budget : {"24.5X", "M", "1e9", "nan", "24,5M", "24.5 M B"})
    expect_command({"estimate", kModel, "--train", "--memory-budget", budget}, 2,
                   fmt::format("must be a number of bytes, such as 200M or 1.5GiB, but is \"{}\"", budget));
  for (const char* budget : {"0", "-5", "0.0001K", "-1.5M"})
    expect_command({"estimate", kModel, "--train", "--memory-budget", budget}, 2, "must be more than 0 bytes");
  expect_command("estimate " + kModel + " --train --memory-budget 99E", 2, "must be fewer bytes");
  expect_command("estimate " + kLstm + " --feed x=float[7,2,3]", 2, "h0, c0, W_x, b_x, W_h, b_h");
  expect_command("estimate " + kLstm + " --feed x=7,2,3", 2, "write it as in X=float[32,128]");
  expect_command("estimate " + kLstm + " --feed x=float[7,,3]", 2, "must be BLOB=TYPE[SIZE,...]");
  expect_command("estimate " + kLstm + " --feed x=flaot[7]", 2, "flaot");
  expect_command("estimate " + kLstm + " --feed x=float[-7]", 2, "-7");
  expect_command("estimate " + kLstm + kShapes + " --feed x=float[7,2,3]", 2, "gives \"x\" twice");
  expect_command("estimate " + kLstm + kShapes + " --bound h_al=float[1]", 2, "Did you mean \"h_all\"?");
  expect_command("estimate " + kLstm + kShapes + " --train --loss nothing", 2, "nothing");
  expect_command("estimate " + kLstm + " --train --feed x=float[7,2,3]", 2, "there are no parameters to train");
}

}  // namespace
}  // namespace stepnet::testing::estimate_command_test
