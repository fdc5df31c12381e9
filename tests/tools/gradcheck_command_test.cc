// `stepnet gradcheck` and `stepnet ops` as a user sees them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/op_spec.h"
#include "tests/tools/command.h"

namespace stepnet {
namespace {

using testing::expect_command;
using testing::Outcome;
using testing::stepnet;

TEST(GradcheckCommand, OfAnOperator) {
  const Outcome outcome = stepnet("gradcheck Tanh --input X=2,3 --order 2");
  EXPECT_EQ(outcome.code, 0) << outcome.text();
  for (const char* word : {"input", "differences", "right", "X", "given/Y"})
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word;
  EXPECT_EQ(outcome.out.find("WRONG"), std::string::npos);
  expect_command("gradcheck FC --input X=2,3 --input W=4,3 --input b=4 --order 2", 0, "right");
  expect_command("gradcheck Gather --input DATA=4,3 --input INDICES=int32,3,0..3", 0, "right");
  expect_command("gradcheck Sum --input X0=2,3 --input X1=2,3", 0, "X1");
  expect_command("gradcheck LayerNorm --input X=3,4 --arg axis=1 --arg epsilon=0.01 --directions 3", 0, "direction");
}

TEST(GradcheckCommand, SaysWrongAndEndsWith1) {
  expect_command("gradcheck Tanh --input X=2,3 --tolerance 1e-30", 1, "WRONG");
  expect_command("gradcheck Tanh --input X=2,3 --tolerance 1e-30 --directions 1", 1, "WRONG");
}

TEST(GradcheckCommand, OfANet) {
  const std::string inputs =
      " --input x=3,2,4 --input h0=1,2,5 --input c0=1,2,5 --input W_x=20,4 --input b_x=20 --input W_h=20,5 --input "
      "b_h=20";
  const Outcome outcome =
      stepnet(fmt::format("gradcheck ../../tools/examples/lstm.pbtxt --loss h_all --directions 4{}", inputs));
  EXPECT_EQ(outcome.code, 0) << outcome.text();
  for (const char* name : {"W_h", "b_x", "h0", "c0"}) EXPECT_NE(outcome.out.find(name), std::string::npos) << name;
}

TEST(GradcheckCommand, Mistakes) {
  expect_command("gradcheck Tahn --input X=2", 2, "Tanh");
  expect_command("gradcheck Tanh", 2, "error: Tanh needs --input X=SIZE,SIZE,... (");
  expect_command("gradcheck Tanh --input X=2 --input Z=2", 2, "error: Tanh has no input \"Z\"");
  expect_command("gradcheck Tanh --input X=2,a..3", 2, "error: \"a..3\" is no range");
  expect_command("gradcheck Tanh --input X=-2", 2, "-2");
  expect_command("gradcheck FC --input X=2,3 --input W=4,3 --input b=4 --arg axes=1", 2, "FC has no argument \"axes\"");
  expect_command("gradcheck FC --input X=2,3 --input W=4,3 --input b=4 --arg axis=x", 2, "error: \"x\" is no number");
  expect_command("gradcheck FC --input X=2,3 --input W=4,2 --input b=4", 2, "[4, 2]");
  expect_command("gradcheck add.pbtxt --loss c", 2, "error: there is no input whose gradient is to be checked");
  expect_command("gradcheck add.pbtxt", 2, "--loss BLOB");
}

TEST(OpsCommand, ListsAllAndShowsOne) {
  const Outcome all = stepnet("ops");
  EXPECT_EQ(all.code, 0);
  EXPECT_NE(all.out.find("LSTMUnit "), std::string::npos);
  const Outcome one = stepnet("ops FC");
  for (const char* word : {"FC: ", "Inputs:", "axis_w", "Derivatives:", "double, float", "reads"})
    EXPECT_NE(one.out.find(word), std::string::npos) << word << " in " << one.text();
  expect_command("ops Tahn", 2, "Tanh");
}

TEST(OpsCommand, TheReferenceHasEveryOperatorAndNoBlankCell) {
  const Outcome page = stepnet("ops --markdown");
  EXPECT_EQ(page.code, 0);
  EXPECT_EQ(page.out.find("|  |"), std::string::npos);
  EXPECT_EQ(page.out.find("| - |"), std::string::npos) << page.out.substr(page.out.find("| - |") - 200, 300);
  for (const char* line : {"## FC\n", "## RecurrentNetwork\n", "## LSTMUnit\n"})
    EXPECT_NE(page.out.find(line), std::string::npos) << line;
}

TEST(Plugins, AreLoadedAndChecked) {
  expect_command(fmt::format("--plugin {} gradcheck ScaleBy --input X=2,3 --arg factor=3", STEPNET_PLUGIN), 0, "right");
  expect_command(fmt::format("--plugin {} ops ScaleBy", STEPNET_PLUGIN), 0, "Multiplies every element");
  expect_command("--plugin nowhere.so ops", 2, "error: cannot load the plugin: nowhere.so");
}

}  // namespace
}  // namespace stepnet
