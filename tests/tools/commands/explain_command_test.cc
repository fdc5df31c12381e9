// `stepnet explain` on a GPU: how loops run, or that this is not told here.
#include <gtest/gtest.h>

#include "stepnet/device.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::testing::explain_command_test {
namespace {

const std::string kModel = source_path("tools/examples/char_lstm.pbtxt");
const std::string kTrain = "explain " + kModel + " --device cuda --train --batch 4 --timesteps 8";
const std::string kNote = "note: how loops run is told by one run on a GPU, and there is none here: ";

bool has_gpu() { return device_offered(DeviceKind::cuda); }

TEST(ExplainLoopsCommand, SaysThatThereIsNoGpu) {
  if (has_gpu()) GTEST_SKIP() << "there is one";
  const Outcome told = testing::stepnet(kTrain);
  EXPECT_EQ(told.code, 0) << told.text();
  EXPECT_EQ(told.err, kNote + "this program was built without CUDA, or the machine has none\n");
  EXPECT_EQ(told.out.find("loop of the step net"), told.out.npos) << told.out;
  EXPECT_EQ(testing::stepnet("explain " + kModel).err, "");
  EXPECT_EQ(testing::stepnet(kTrain + " --code").err, "");
}

TEST(ExplainLoopsCommand, TellsOfLoops) {
  if (!has_gpu()) GTEST_SKIP() << "this machine has no GPU, and none is imitated";
  const std::string out = expect_command(kTrain, 0, "\nloop of the step net \"");
  for (const char* part : {"\": one kernel of 8 timesteps", "\nbackward loop of the step net \"", "units each"})
    EXPECT_NE(out.find(part), out.npos) << part << " is not in " << out;
}

// A net of one cell, whose step net ends with these operators.
std::string cell(const std::string& ops, const std::string& more = "") {
  return R"(op { type: "RecurrentNetwork" input: "x" input: "h0" output: "h_all" )" + more +
         R"([stepnet.recurrent] { sequence { outer: "x" inner: "x_t" }
           state { input: "h_prev" output: "h" initial: "h0" all: "h_all" }
           step_net { name: "cell" op { type: "Add" input: "x_t" input: "h_prev" output: "s" } )" +
         ops + "} } }";
}

TEST(ExplainLoopsCommand, TellsWhyNot) {
  if (!has_gpu()) GTEST_SKIP() << "this machine has no GPU, and none is imitated";
  const TempFolder folder;
  const auto explain = [&](const std::string& net) {
    const std::string path = folder.file("net.pbtxt");
    write_all(path, net);
    return testing::stepnet("explain " + path + " --device cuda --feed x=float[5,2,16] --feed h0=[1,2,16]");
  };
  const std::string loop = "loop of the step net \"cell\": ";
  const auto expect_text = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << part << " is not in " << text;
  };
  expect_text(explain(cell(R"(op { type: "LogSoftmax" input: "s" output: "h" arg { name: "axis" i: 2 } })")).out,
              loop +
                  "a graph of its operators, and not one kernel: LogSoftmax is neither a product, nor elementwise, nor "
                  "a known operator on whole rows\n");
  expect_text(explain(cell(R"(op { type: "Tanh" input: "s" output: "h" })",
                           R"(arg { name: "disabled_passes" strings: "persistent" } )"))
                  .out,
              loop + "a graph of its operators, and not one kernel: the pass \"persistent\" is left out\n");
  expect_text(
      explain(cell(R"(op { type: "Dropout" input: "s" output: "h" output: "m" arg { name: "is_test" i: 0 } })")).out,
      loop + "operator by operator, as Dropout can be in no graph, and not one kernel: Dropout is neither");
  expect_text(
      explain(cell(R"(op { type: "Tanh" input: "s" output: "h" })") + R"(op { type: "Print" input: "h_all" })").err,
      kNote + "Print has effects outside of the net\n");
}

}  // namespace
}  // namespace stepnet::testing::explain_command_test
