// The stepnet command as a user sees it: exit codes, and what it prints.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/io/npy.h"
#include "stepnet/op_spec.h"
#include "stepnet/tensor.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"

namespace stepnet::cli_test {
namespace {

using testing::Outcome;
using testing::stepnet;

void expect(const std::string& arguments, int code, const std::string& text) {
  testing::expect_command(arguments, code, text);
}

TEST(Cli, RunsANet) {
  const Outcome outcome = stepnet("run add.pbtxt --fetch c --fetch a");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text(), "c is float[2, 3]\n  2 3 4\n  2 3 4\na is float[2, 3]\n  1 1 1\n  1 1 1\n");
}

TEST(Cli, RunsAPlan) {
  expect("run count_plan.pbtxt --fetch n", 0, "n = 7\n");
  expect("run count_plan.pbtxt --fetch n --iterations 3", 0, "n = 3\n");
  expect("run count_plan.pbtxt --as plan --fetch n", 0, "n = 7\n");
}

TEST(Cli, WatchesBlobs) {
  EXPECT_EQ(stepnet("run count_plan.pbtxt --watch n --every 3").text(), "iteration 3  n = 3\niteration 6  n = 6\n");
  EXPECT_EQ(
      stepnet("run add.pbtxt --watch c --iterations 2").text(),
      "iteration 1  c is float[2, 3]: min 2, mean 3, max 4\niteration 2  c is float[2, 3]: min 2, mean 3, max 4\n");
  expect("run misspelt_blob.pbtxt --watch gate", 2,
         "error: --watch \"gate\": no net writes this blob. Did you mean \"gates\"?\n");
}

TEST(Cli, FeedsAndFetchesArrays) {
  const std::string path = ::testing::TempDir() + "stepnet_cli_test_" + std::to_string(getpid()) + ".npy";
  EXPECT_EQ(stepnet("run add.pbtxt --fetch c=" + path).text(), "");
  EXPECT_EQ(stepnet("run negative.pbtxt --feed x=" + path + " --fetch y").text(),
            "y is float[2, 3]\n  -2 -3 -4\n  -2 -3 -4\n");
  std::remove(path.c_str());
  expect("run negative.pbtxt --feed x=" + path, 2, path);
  expect("run negative.pbtxt", 2, "error: the net reads \"x\", which holds nothing.");
}

TEST(Cli, FeedsDrawnValues) {
  const std::string how = "run negative.pbtxt --feed x=float[2,3] --fetch x --fetch y";
  const Outcome first = stepnet(how), second = stepnet(how), other = stepnet(how + " --seed 2");
  EXPECT_EQ(first.code, 0) << first.text();
  EXPECT_NE(first.out.find("x is float[2, 3]"), std::string::npos);
  EXPECT_EQ(first.out, second.out);
  EXPECT_NE(first.out, other.out);
  expect("run negative.pbtxt --feed x=int64[2] --fetch y", 0, "y is int64[2]\n  0 0\n");
  expect("run negative.pbtxt --feed x=float[2", 2, "cannot open");
  expect("run negative.pbtxt --feed x=float[2] --feed x=float[3]", 2, "--feed gives \"x\" twice");
}

TEST(Cli, WarnsOfWhatIsFedAndNotFinite) {
  const testing::TempFolder folder;
  const std::string path = folder.file("x.npy");
  write_npy(path, Tensor::of<float>({2, 2}, {1, 2, NAN, 4}));
  const Outcome outcome = stepnet("run negative.pbtxt --feed x=" + path);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "warning: what is fed to \"x\" is nan at [1, 0]\n");
}

TEST(Cli, AFeedThatNoNetReadsIsAMistake) {
  expect("run negative.pbtxt --feed X=float[2]", 2,
         "error: --feed \"X\": no net reads this blob. Did you mean \"x\"?\n");
  expect("run negative.pbtxt --feed x=float[2] --feed other=float[1]", 2,
         "--feed \"other\": no net reads this blob.\n");
  expect("run negative.pbtxt --feed x=float[2] --feed other=float[1] --fetch other", 0, "other = ");
}

TEST(Cli, AnInitialisationNetFillsBlobs) {
  expect("run negative.pbtxt --init fill_x.pbtxt --fetch y", 0, "y = -2.5\n");
  expect("run negative.pbtxt --init misspelt_field.pbtxt", 2, "misspelt_field.pbtxt:2:27");
}

TEST(Cli, ProfilesARun) {
  const Outcome outcome = stepnet("run add.pbtxt --profile");
  EXPECT_EQ(outcome.code, 0);
  for (const char* part :
       {"operator", "ConstantFill", "Add", "matrix products", "recurrent states", "memory at the peak"})
    EXPECT_NE(outcome.text().find(part), std::string::npos) << part;
}

TEST(Cli, ANetForTheGpuRunsOnTheCpu) {
  expect("run gpu.pbtxt --device cpu --fetch a", 0, "note: the net asks for a GPU; it runs on the CPU\n");
}

TEST(Cli, ChecksANet) {
  expect("check add.pbtxt --loss c", 0, "net \"add\": 3 operators\n");
  expect("check count_plan.pbtxt", 0, "plan \"count\": 2 networks\n");
  expect("check add.pbtxt", 0, "no mistakes found\n");
}

TEST(Cli, ExpandsTheShortForm) {
  const Outcome outcome = stepnet("expand ../../tools/examples/lstm.pbtxt");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text().find("stepnet."), std::string::npos);
  EXPECT_NE(outcome.text().find("\"link_internal\""), std::string::npos);
  expect("expand ../../tools/examples/lstm.pbtxt --gradients --loss h_all", 0, "type: \"RecurrentNetworkGradient\"");
  expect("expand ../../tools/examples/lstm.pbtxt --gradients", 2, "error: --gradients needs --loss BLOB");
}

TEST(Cli, MisspeltNamesGetTheNearest) {
  for (const std::string command : {"run ", "check "}) {
    expect(command + "misspelt_operator.pbtxt", 2, "Did you mean \"ConstantFill\"?");
    expect(command + "misspelt_operator.pbtxt", 2, "misspelt_operator.pbtxt:2:1");
    expect(command + "misspelt_argument.pbtxt", 2, "Did you mean \"shape\"?");
    expect(command + "misspelt_field.pbtxt", 2,
           "error: OperatorDef has no field \"outptu\". Did you mean \"output\"?\n  in  misspelt_field.pbtxt:2:27\n");
  }
  expect("run misspelt_blob.pbtxt", 2,
         "error: the net reads \"gatse\", which holds nothing. Did you mean \"gates\"?\n  in  misspelt_blob.pbtxt:3:1\n"
         "  fix give it with --feed gatse=FILE.npy, or name a net that fills it with --init\n");
}

TEST(Cli, ShapesThatDoNotFit) {
  for (const std::string command : {"run ", "check "}) {
    const Outcome outcome = stepnet(command + "shapes.pbtxt");
    EXPECT_EQ(outcome.code, 2);
    for (const char* part : {"MatMul: ", "shapes.pbtxt:4:1", "a is float[2, 3]", "b is float[4, 5]"})
      EXPECT_NE(outcome.text().find(part), std::string::npos) << outcome.text();
  }
}

TEST(Cli, FilesThatHoldNothing) {
  for (const std::string command : {"run ", "check ", "expand "}) {
    expect(command + "empty.pbtxt", 2, "error: \"empty.pbtxt\" is empty: it holds neither a net nor a plan\n");
    expect(command + ".", 2, "error: cannot read \".\": it is a directory\n");
    expect(command + "nothing.pbtxt", 2, "error: cannot open \"nothing.pbtxt\": No such file or directory\n");
  }
}

TEST(Cli, SaysItsVersion) {
  const Outcome outcome = stepnet("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with("stepnet 0.")) << outcome.out;
}

TEST(Cli, AnOperatorBeforeWhatItReads) {
  const testing::TempFolder folder;
  const std::string path = folder.file("net.pbtxt");
  testing::write_all(path,
                     "external_input: 'x'\nop { type: 'Tanh' input: 'h' output: 'y' }\n"
                     "op { type: 'Negative' input: 'x' output: 'h' }\n");
  for (const std::string command : {"check ", "run --feed x=float[2] "})
    expect(command + path, 2,
           "Tanh: the input \"h\" is written by operator 1 (Negative), which runs later\n  in  " + path + ":2:1");
}

// A parameter that nothing trains is a mistake more often than not.
TEST(Cli, CheckWarnsOfParametersThatAreNotTrained) {
  const testing::TempFolder folder;
  const std::string path = folder.file("net.pbtxt");
  const std::string model = R"(
arg { name: "stepnet.model" n {
  arg { name: "init" n {
    op { type: "XavierFill" output: "table" arg { name: "shape" ints: 256 ints: 8 } }
    op { type: "XavierFill" output: "shift" arg { name: "shape" ints: 8 } }
    op { type: "XavierFill" output: "spare" arg { name: "shape" ints: 8 } }
  } }
  arg { name: "loss" s: "loss" } arg { name: "input" s: "tokens" }
  arg { name: "target" s: "next" } arg { name: "logits" s: "scores" }
} })";
  const auto check = [&](const std::string& shift, const std::string& more) {
    testing::write_all(path, "op { type: 'Gather' input: 'table' input: 'tokens' output: 'rows' }\n" + shift +
                                 "op { type: 'Add' input: 'rows' input: 'shifted' output: 'scores' "
                                 "arg { name: 'broadcast' i: 1 } }\n"
                                 "op { type: 'FlattenToVec' input: 'next' output: 'labels' }\n"
                                 "op { type: 'Flatten' input: 'scores' output: 'flat' arg { name: 'axis' i: 2 } }\n"
                                 "op { type: 'SoftmaxWithLoss' input: 'flat' input: 'labels' output: 'p' output: "
                                 "'loss' }\n" +
                                 model);
    return stepnet("check " + more + path);
  };
  const std::string read = "op { type: 'Copy' input: 'shift' output: 'shifted' }\n";
  const std::string stopped = "op { type: 'StopGradient' input: 'shift' output: 'shifted' }\n";
  const std::string spare = "warning: no operator of the net \"\" reads the parameter \"spare\"\n";
  Outcome outcome = check(read, "");
  EXPECT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_EQ(outcome.err, spare);
  EXPECT_NE(outcome.out.find("no mistakes found, but see the warnings\n"), std::string::npos);
  outcome = check(stopped, "");
  EXPECT_EQ(
      outcome.err,
      "warning: the gradient of \"loss\" does not reach the parameter \"shift\": it will not be trained\n" + spare);
  EXPECT_EQ(check(read, "--strict ").code, 2);
}

TEST(Cli, UsageMistakes) {
  expect("", 2, "subcommand is required");
  expect("run", 2, "FILE is required");
  expect("run add.pbtxt --as nett", 2, "--as");
  expect("run add.pbtxt --no-such-option", 2, "--no-such-option");
  expect("run add.pbtxt --every 0", 2, "--every");
  expect("run add.pbtxt --feed x", 2,
         "error: --feed takes BLOB=FILE.npy, or BLOB=TYPE[SIZE,...] for values that are drawn, but is \"x\"\n");
  expect("trian", 2, "error: there is no command \"trian\". Did you mean \"train\"?\n  fix see stepnet --help\n");
  expect("fly", 2, "error: there is no command \"fly\".\n");
  if (!find_op("Allreduce"))
    expect("ops Allreduce", 2, "there is no operator \"Allreduce\", because this build has no MPI");
  expect("ops Lstm", 2, "there is no operator \"Lstm\". Did you mean \"LSTM\"");
  expect("ops fc", 2, "there is no operator \"fc\". Did you mean \"FC\"");
  expect("run add.pbtxt --fetch d", 2, "\"d\"");
  expect("run add.pbtxt --device cuda", 2, "CUDA");
  for (const std::string command : {"", "run ", "check ", "expand "}) expect(command + "--help", 0, "Usage: stepnet");
}

}  // namespace
}  // namespace stepnet::cli_test
