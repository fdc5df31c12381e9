// The options of `stepnet run`, `check` and `expand`, one by one.
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <regex>
#include <thread>

#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"

namespace stepnet::run_command_test {
namespace {

using testing::Command;
using testing::expect_command;
using testing::expect_contains;
using testing::Outcome;
using testing::TempFolder;
using testing::write_all;

class RunCommandTest : public ::testing::Test {
 protected:
  std::string net(const std::string& text) const {
    const std::string path = folder_.file("net.pbtxt");
    write_all(path, text);
    return path;
  }
  std::string uniform() const {
    return net(R"(name: "n" op { type: "UniformFill" output: "u" arg { name: "shape" ints: 3 } })");
  }

  testing::TempFolder folder_;
};

TEST_F(RunCommandTest, HelpExplainsEveryOption) {
  const std::pair<const char*, std::vector<const char*>> all[] = {
      {"run",
       {"--device", "--feed", "--fetch", "--init", "--iterations", "--watch", "--every", "--threads", "--seed",
        "--profile", "--as", "--strict", "--keep-all"}},
      {"check", {"--as", "--shape", "--loss", "--strict"}},
      {"draw", {"--feed", "--init", "--loss", "--output", "--strict"}},
      {"expand",
       {"--as", "--gradients", "--loss", "--per-sample", "--jacobian", "--hessian", "--of", "--samples", "--feed",
        "--output", "--binary", "--strict"}},
      {"train",
       {"--text", "--iterations", "--seconds", "--out", "--resume", "--optimizer", "--lr", "--clip", "--seed",
        "--threads", "--profile", "--quiet", "--keep-all", "--strict"}},
      {"sample",
       {"--out", "--checkpoint", "--length", "--temperature", "--prompt", "--seed", "--stop", "--greedy", "--beams",
        "--all", "--length-penalty", "--strict"}},
      {"text-db", {"--type", "--timesteps", "--batch", "--width", "--records"}}};
  for (const auto& [command, options] : all) {
    const std::string help =
        expect_command(std::string(command) + " --help", 0, "Usage: stepnet " + std::string(command));
    for (const char* option : options)
      EXPECT_TRUE(std::regex_search(help, std::regex(std::string("\n  [^\n]*") + option + "[ ,][^\n]*\\s+[A-Z]")))
          << command << " " << option << "\n"
          << help;
  }
}

TEST_F(RunCommandTest, SharedMemoryChangesNoResult) {
  const std::string line = "run " + net(R"(name: "n" external_output: "z"
      op { type: "UniformFill" output: "u" arg { name: "shape" ints: 3 } }
      op { type: "Exp" input: "u" output: "v" } op { type: "Negative" input: "v" output: "w" }
      op { type: "Sqr" input: "w" output: "z" })") +
                           " --iterations 5 --fetch v --fetch z --watch w";
  EXPECT_EQ(expect_command(line, 0, "v is float[3]"), expect_command(line + " --keep-all", 0, "v is float[3]"));
}

// What no net lists as an output is kept if another net or a step names it.
TEST_F(RunCommandTest, NetsOfAPlanReadWhatOthersWrote) {
  const std::string plan = net(R"(name: "p"
      network { name: "a"
        op { type: "Iter" input: "i" output: "i" } op { type: "Cast" input: "i" output: "x" arg { name: "to" i: 1 } }
        op { type: "Scale" input: "x" output: "y" arg { name: "scale" f: 2 } }
        op { type: "GT" input: "x" input: "limit" output: "enough" } }
      network { name: "b" op { type: "Sqr" input: "y" output: "z" } op { type: "Scale" input: "z" output: "last" } }
      network { name: "init" op { type: "ConstantFill" output: "i" arg { name: "shape" ints: 1 } arg { name: "dtype" i: 10 } }
        op { type: "ConstantFill" output: "limit" arg { name: "shape" ints: 1 } arg { name: "value" f: 6.5 } } }
      execution_step { name: "init" network: "init" }
      execution_step { name: "loop" network: "a" network: "b" should_stop_blob: "enough" })");
  const std::string line = "run " + plan + " --fetch last --fetch x";
  EXPECT_EQ(expect_command(line, 0, "last = 144"), expect_command(line + " --keep-all", 0, "x = 7"));
}

// A plan that counts up from 40, and saves the count to the file "n" at the end.
std::string counting_plan(const std::string& folder, bool saves) {
  const auto save = [&](const char* name) {
    return fmt::format(
        "network {{ name: '{0}' op {{ type: 'Save' input: 'n' arg {{ name: 'db' s: '{1}/{0}' }} arg {{ "
        "name: 'db_type' s: 'minidb' }} arg {{ name: 'absolute_path' i: 1 }} }} }} ",
        name, folder);
  };
  return "name: 'p' network { name: 'init' op { type: 'ConstantFill' output: 'n' arg { name: 'shape' ints: 1 } arg { "
         "name: 'dtype' i: 10 } arg { name: 'value' i: 40 } } } network { name: 'count' op { type: 'Iter' input: 'n' "
         "output: 'n' } } " +
         save("begun") + save("n") +
         "execution_step { network: 'init' network: 'begun' } execution_step { name: 'loop' num_iter: 2000000000 "
         "network: 'count' } " +
         (saves ? "execution_step { network: 'n' }" : "");
}

TEST_F(RunCommandTest, ASignalEndsTheLoopsOfAPlanAndLetsItSave) {
  for (const bool saves : {true, false}) {
    const TempFolder folder;
    const std::string plan = net(counting_plan(folder.path(), saves));
    Command command(std::vector<std::string>{"run", plan, "--threads", "1"});
    while (!std::filesystem::exists(folder.file("begun")) && command.running())
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    command.send(SIGINT);
    const Outcome outcome = command.wait();
    EXPECT_EQ(outcome.code, saves ? 0 : 130) << outcome.text();
    testing::expect_contains(outcome.err, "stopped by a signal after the running iteration; " +
                                              std::string(saves ? "steps after it have saved\n"
                                                                : "no step after it is known to have saved\n"));
    if (!saves) continue;
    const std::string load =
        net(fmt::format("op {{ type: 'Load' output: 'n' arg {{ name: 'db' s: '{}' }} arg {{ name: "
                        "'db_type' s: 'minidb' }} arg {{ name: 'absolute_path' i: 1 }} }}",
                        folder.file("n")));
    const std::string text = expect_command("run " + load + " --fetch n", 0, "n = ");
    EXPECT_GT(std::stoll(text.substr(text.find("n = ") + 4)), 40) << text;
  }
}

TEST_F(RunCommandTest, TheSeedDecidesRandomDraws) {
  const std::string line = "run " + uniform() + " --fetch u --seed ";
  const std::string first = expect_command(line + "5", 0, "u is float[3]\n");
  EXPECT_EQ(expect_command(line + "5 --threads 1", 0, "u is"), first);
  EXPECT_NE(expect_command(line + "6", 0, "u is"), first);
}

TEST_F(RunCommandTest, Devices) {
  const std::string cpu = expect_command("run add.pbtxt --fetch c --device cpu", 0, "c is float[2, 3]\n");
  EXPECT_EQ(testing::stepnet("run add.pbtxt --fetch c --device auto").out, cpu);
  expect_command("run add.pbtxt --device tpu", 2, "--device: ");
}

TEST_F(RunCommandTest, FetchWritesWhatFeedReads) {
  const std::string c = folder_.file("c.npy"), y = folder_.file("y.npy");
  expect_command("run add.pbtxt --fetch c=" + c, 0, "");
  expect_command("run negative.pbtxt --feed x=" + c + " --fetch y=" + y, 0, "");
  expect_command("run negative.pbtxt --feed x=" + y + " --fetch y", 0, "y is float[2, 3]\n  2 3 4\n  2 3 4\n");
  expect_command("run add.pbtxt --fetch c=" + folder_.file("no/c.npy"), 2,
                 "no cannot be used: No such file or directory");
  EXPECT_EQ(folder_.count(), 2);
}

TEST_F(RunCommandTest, InitRunsOnceAndIterationsCount) {
  const std::string count = net(R"(name: "n" op { type: "Iter" input: "n" output: "n" })");
  const std::string init = folder_.file("init.pbtxt");
  write_all(init, R"(name: "i" op { type: "ConstantFill" output: "n"
      arg { name: "shape" ints: 1 } arg { name: "dtype" i: 10 } arg { name: "value" i: 40 } })");
  const std::string line = "run " + count + " --init " + init + " --fetch n";
  expect_command(line, 0, "n = 41\n");
  expect_command(line + " --iterations 5", 0, "n = 45\n");
  expect_command(line + " --iterations 0", 0, "n = 40\n");
  EXPECT_EQ(testing::stepnet(line + " --iterations 5 --watch n --every 2").out,
            "iteration 2  n = 42\niteration 4  n = 44\nn = 45\n");
}

// Each message has the place and the fix.
TEST_F(RunCommandTest, MistakesInANetSayTheFix) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"op { type: 'FC' input: 'x' output: 'y'\nop { type: 'Relu' input: 'y' output: 'z' }",
       "OperatorDef has no field \"op\".\n  in  *:2:1\n  fix \"op\" is a field of the net: a } is missing that closes "
       "the operator before it"},
      {"op { type: 'FC' input: \"x input: \"W\" output: \"y\" }",
       "OperatorDef has no field \"W\".\n  in  *:1:35\n  fix a quotation mark is missing in front of it, or in the "
       "text "
       "before"},
      {"op { type: 'FC' input: 'x' input: 'W' output: 'y' arg { axis: 2 } }",
       "Argument has no field \"axis\".\n  in  *:1:57\n  fix an argument is written arg { name: \"axis\" i: 1 }"},
      {"net = FC(x, W, b)",
       "NetDef has no field \"net\".\n  in  *:1:1\n  fix a net or plan is protobuf text, such as op { type: \"Relu\""},
      {"{\"op\": []}", "Expected identifier, got: {\n  in  *:1:1\n  fix a net or plan is protobuf text"},
      {"op { type: 'Dense' input: 'x' output: 'y' }",
       "there is no operator \"Dense\".\n  in  *:1:1, operator 0 of net \"\"\n  op  y = Dense(x)\n  fix `stepnet ops` "
       "lists all"},
      {"op { type: 'Relu' input: 'z' output: 'y' } op { type: 'Tanh' input: 'y' output: 'z' }",
       "the net reads \"z\" before it writes it, when it holds nothing\n  in  *:1:1\n  fix put the operator that "
       "writes "
       "it in front, or give it a first value with --feed z=FILE.npy"}};
  for (const auto& [text, error] : mistakes) {
    const std::string path = net(text);
    std::string expected = error;
    if (const size_t star = expected.find('*'); star != expected.npos) expected.replace(star, 1, path);
    expect_command("run " + path, 2, expected);
  }
}

TEST_F(RunCommandTest, MistakesInACallSayTheFix) {
  expect_command(
      "run negative.pbtxt --feed x=2,3", 2,
      "error: --feed \"x=2,3\" gives sizes without a type\n  fix values are drawn for --feed x=float[2,3], and "
      "read for --feed x=FILE.npy\n");
  expect_command("run negative.pbtxt --feed x=float[2] --fetch yy", 2,
                 "error: --fetch \"yy\": there is no such blob.\n  fix there are x, y\n");
  expect_command("run negative.pbtxt --device gpu", 2, "error: --device: \"gpu\" is none of auto, cpu, cuda\n");
  expect_command("train negative.pbtxt --lr abc", 2, "error: --lr must be a number, but is \"abc\"\n");
  expect_command("check negative.pbtxt --shape x=2x3", 2,
                 "error: --shape \"x=2x3\": sizes are numbers with commas between them, as in x=2,3\n");
}

TEST_F(RunCommandTest, ALongValueIsNoNumberEither) {
  expect_command("train negative.pbtxt --lr " + std::string(100000, 'a'), 2, "error: ");
}

TEST_F(RunCommandTest, AsDecidesHowTheFileIsRead) {
  expect_command("run add.pbtxt --as net --fetch c", 0, "c is");
  expect_command("run add.pbtxt --as plan", 2, "error: ");
  expect_command("run count_plan.pbtxt --as net", 2, "error: ");
}

TEST_F(RunCommandTest, StrictMakesErrorsOfWarnings) {
  const std::string path = net(R"(name: "n" op { type: "ConstantFill" output: "a" arg { name: "shape" ints: 2 }
      arg { name: "something_else" i: 1 } })");
  const Outcome lenient = testing::stepnet("run " + path + " --fetch a");
  EXPECT_EQ(lenient.code, 0);
  EXPECT_TRUE(lenient.err.starts_with("warning: ")) << lenient.err;
  expect_contains(lenient.err, "something_else");
  for (const std::string command : {"run ", "check ", "expand ", "draw ", "estimate ", "explain ", "bench "}) {
    const Outcome warned = testing::stepnet(command + path + (command == "bench " ? " --iterations 1" : ""));
    EXPECT_EQ(warned.code, 0) << command << warned.text();
    expect_contains(warned.err, "something_else");
    expect_contains(expect_command(command + path + " --strict", 2, "error: "), "something_else");
  }
}

TEST_F(RunCommandTest, ProfileCountsPerOperator) {
  const std::string out = testing::stepnet("run add.pbtxt --profile --iterations 4").out;
  EXPECT_TRUE(std::regex_search(out, std::regex("operator +calls +ms +share +MB +GFLOP/s\n"))) << out;
  EXPECT_TRUE(std::regex_search(out, std::regex("\nAdd +4 +[0-9.]+ +[0-9.]+% +[0-9.]+ +"))) << out;
  for (const char* part : {"\ntotal ", "\nmatrix products ", "\nrecurrent states ", " MB copied",
                           "\nkept for backward ", "\nmemory at the peak "})
    expect_contains(out, part);
}

// A net that would write a file if it ran.
TEST_F(RunCommandTest, CheckRunsNothing) {
  const std::string db = folder_.file("saved");
  const std::string path = net(R"(name: "n" op { type: "ConstantFill" output: "a" arg { name: "shape" ints: 2 } }
      op { type: "Save" input: "a" arg { name: "db" s: ")" +
                               db + R"(" } arg { name: "db_type" s: "minidb" }
           arg { name: "absolute_path" i: 1 } })");
  expect_command("check " + path, 0, "no mistakes found\n");
  EXPECT_FALSE(std::filesystem::exists(db));
  expect_command("run " + path, 0, "");
  EXPECT_TRUE(std::filesystem::exists(db));
}

TEST_F(RunCommandTest, CheckFindsMistakes) {
  expect_command("check negative.pbtxt --shape x=2,3", 0, "y float[2, 3]");
  expect_command(
      "check ../../tools/examples/char_lstm.pbtxt", 0,
      "\n  constants   b, b_out: init gives fixed values, which training changes; what is to keep them must be "
      "read through a StopGradient\n");
  expect_command("check negative.pbtxt --shape x", 2, "error: --shape takes NAME=[TYPE,]SIZE,SIZE,..., but is \"x\"\n");
  const std::string product = net(R"(name: "n" op { type: "MatMul" input: "a" input: "b" output: "c" })");
  expect_command("check " + product + " --shape a=2,3 --shape b=4,5", 2, "error: MatMul: ");
  expect_command("check " + product + " --shape a=2,3 --shape b=3,5", 0, "no mistakes found\n");
  const std::string missing = net(R"(name: "n" op { type: "MatMul" input: "a" output: "c" })");
  expect_command("check " + missing, 2, "error: MatMul: ");
  const std::string measure = net(R"(name: "n" op { type: "SumSqrElements" input: "x" output: "y" })");
  expect_command("check " + measure, 0, "no mistakes found\n");
  expect_command("check " + measure + " --loss z", 2, "\"z\"");
  expect_command("check " + measure + " --loss y", 0, "for x");
  const std::string clip = net(R"(name: "n" op {
    type: "GlobalNormClip" input: "x" output: "x" output: "norm" arg { name: "max_norm" f: 1 } })");
  expect_command("check " + clip + " --loss norm", 2, "it changes gradients on their way to an optimizer");
}

TEST_F(RunCommandTest, ExpandPrintsGradientsOnRequest) {
  const std::string path = net(R"(name: "n" external_input: "x" op { type: "Tanh" input: "x" output: "y" }
             op { type: "AveragedLoss" input: "y" output: "loss" })");
  EXPECT_EQ(testing::stepnet("expand " + path).out.find("TanhGradient"), std::string::npos);
  const std::string text = expect_command("expand " + path + " --gradients --loss loss", 0, "type: \"TanhGradient\"");
  EXPECT_EQ(testing::stepnet("expand " + path + " --gradients --loss loss -o " + folder_.file("full.pbtxt")).out, "");
  EXPECT_EQ(testing::read_all(folder_.file("full.pbtxt")), text);
  expect_command("expand " + folder_.file("full.pbtxt"), 0, text);
  expect_command("expand " + path + " --binary -o " + folder_.file("net.bin"), 0, "");
  expect_command("expand " + folder_.file("net.bin"), 0, "type: \"Tanh\"");
  expect_command("expand " + path + " --loss loss", 2,
                 "error: --loss is only used with --gradients, --tangents or --per-sample\n");
  expect_command("expand " + path + " --gradients --loss z", 2, "\"z\"");
  const std::string two = net(R"(name: "n" op { type: "Mul" input: "x" input: "w" output: "y" }
             op { type: "AveragedLoss" input: "y" output: "loss" })");
  const std::string of_w = expect_command("expand " + two + " --gradients --loss loss --of w", 0, "\"w_grad\"");
  EXPECT_EQ(of_w.find("\"x_grad\""), std::string::npos) << of_w;
  expect_command("expand " + two + " --gradients --loss loss --of v", 2, "wanted: v");
  expect_command("expand " + two + " --of w", 2, "--of is only used with --gradients, --jacobian or --hessian");
  expect_command("expand " + path + " -o " + folder_.file("no/full.pbtxt"), 2, "cannot be used");
}

TEST_F(RunCommandTest, ExpandPrintsTangentsOnRequest) {
  const std::string path = net(R"(name: "n" external_input: "x" op { type: "Tanh" input: "x" output: "y" }
             op { type: "AveragedLoss" input: "y" output: "loss" })");
  expect_command("expand " + path + " --tangents x", 0, "output: \"loss_tangent\"");
  expect_command("expand " + path + " --tangents x --loss y", 0, "output: \"y_tangent\"");
  expect_command("expand " + path + " --tangents x --gradients --loss loss", 0, "input: \"loss_tangent_autogen_grad\"");
  expect_command("expand " + path + " --tangents z", 2, "no blob \"z\"");
  expect_command("expand " + path + " --tangents loss --loss y", 2, "depends on none of --tangents loss");
  const std::string stopped = net(R"(name: "n" op { type: "Tanh" input: "x" output: "a" }
             op { type: "StopGradient" input: "a" output: "y" })");
  expect_command("expand " + stopped + " --tangents x --loss y", 2, "(StopGradient) at " + stopped + ":2:");
}

TEST_F(RunCommandTest, ExpandOfNetsThatOnlyRunForward) {
  const std::string path = net(R"(op { type: "RNN" arg { name: "hidden" i: 2 } input: "X" input: "" input: "V"
             input: "W" input: "b" input: "c" output: "Y" } op { type: "AveragedLoss" input: "Y" output: "loss" })");
  expect_command("expand " + path, 0, "backward_step_net");
  const auto expanded = [&](const std::string& more) { return testing::stepnet("expand " + path + more).out; };
  EXPECT_EQ(expanded(" --forward-only").find("backward_step_net"), std::string::npos);
  EXPECT_EQ(expanded(" --forward-only --tangents W --loss loss").find("backward_step_net"), std::string::npos);
  EXPECT_NE(expanded(" --forward-only --gradients --loss loss").find("backward_step_net"), std::string::npos);
}

TEST_F(RunCommandTest, ExpandTellsGradientsBySamples) {
  const std::string path = net(R"(name: "n" op { type: "FC" input: "x" input: "W" input: "b" output: "y" }
             op { type: "SumSqrElements" input: "y" output: "loss" })");
  const std::string feeds = " --feed x=float[3,2] --feed W=float[4,2] --feed b=float[4]";
  const std::string command = "expand " + path + " --per-sample ";
  const std::string by_sample = " --loss loss --samples x=0";
  expect_command(command + "norms" + by_sample + feeds, 0, "output: \"per_sample_norms\"");
  expect_command(command + "gradients" + by_sample + feeds + " -o " + folder_.file("each.pbtxt"), 0, "");
  expect_command("run " + folder_.file("each.pbtxt") + feeds + " --fetch W_per_sample", 0, "float[3, 4, 2]");
  const std::string defined = net(R"(name: "n" arg { name: "stepnet.operators" nets {
      name: "Layer" external_input: "x" external_input: "W" external_input: "b" external_output: "y"
      op { type: "FC" input: "x" input: "W" input: "b" output: "s" } op { type: "Tanh" input: "s" output: "y" } } }
      op { type: "Layer" input: "x" input: "W" input: "b" output: "y" }
      op { type: "SumSqrElements" input: "y" output: "loss" })");
  expect_command("expand " + defined + " --per-sample norms" + by_sample + feeds, 0, "output: \"per_sample_norms\"");
  expect_command(command + "norms --loss loss" + feeds, 2, "needs --loss, --samples and a --feed");
  expect_command(command + "norms --loss loss --samples x" + feeds, 2, "takes BLOB=AXIS");
  expect_command(command + "norms --loss loss --samples x=5" + feeds, 2, "names no dimension of a --feed");
  expect_command(command + "norms --loss loss --samples x=1" + feeds, 2, "samples are not apart");
  expect_command(command + "both" + by_sample + feeds, 2, "--per-sample");
  expect_command("expand " + path + " --samples x=0", 2, "only used with --per-sample");
  expect_command(command + "norms --gradients" + by_sample + feeds, 2, "is not used with --gradients");
}

TEST_F(RunCommandTest, ExpandPrintsJacobiansAndHessians) {
  const std::string path = net(R"(name: "n" op { type: "FC" input: "x" input: "W" input: "b" output: "s" }
             op { type: "Tanh" input: "s" output: "y" } op { type: "SumSqrElements" input: "y" output: "loss" })");
  const std::string feeds = " --feed x=float[3,2] --feed W=float[4,2] --feed b=float[4]";
  const std::string command = "expand " + path, made = folder_.file("made.pbtxt");
  expect_command(command + " --jacobian y --of x --of W" + feeds + " -o " + made, 0, "");
  expect_command("run " + made + feeds + " --fetch x_jacobian", 0, "float[12, 3, 2]");
  expect_command("run " + made + feeds + " --fetch W_jacobian", 0, "float[12, 4, 2]");
  expect_command(command + " --hessian loss --of W --of b" + feeds + " -o " + made, 0, "");
  expect_command("run " + made + feeds + " --fetch W_hessian", 0, "float[8, 4, 2]");
  expect_command("run " + made + feeds + " --fetch b_W_hessian", 0, "float[4, 4, 2]");
  expect_command(command + " --jacobian y" + feeds, 2, "need --of and a --feed");
  expect_command(command + " --of x", 2, "only used with --gradients, --jacobian or --hessian");
  expect_command(command + " --jacobian y --hessian loss --of x" + feeds, 2, "not used together");
  expect_command(command + " --jacobian y --of x --gradients" + feeds, 2, "are not used with --gradients");
  expect_command(command + " --jacobian y --of x --feed x=float[3,2]", 2, "nothing says what type \"W\" has");
  expect_command(command + " --hessian y --of x" + feeds, 2, "a Hessian is that of one number");
  const std::string mean = net(R"(name: "n" op { type: "Sqr" input: "x" output: "h" }
             op { type: "AveragedLoss" input: "h" output: "y" })");
  const std::string of_mean = folder_.file("mean.pbtxt");
  expect_command("expand " + mean + " --jacobian y --of x --feed x=float[1] -o " + of_mean, 0, "");
  expect_command("run " + of_mean + " --feed x=float[1] --fetch x_jacobian", 0, "x_jacobian = ");
  expect_command("run " + of_mean + " --feed x=float[4] --fetch x_jacobian", 2, "[4]");
}

TEST_F(RunCommandTest, ExpandPrintsSensitivitiesOnRequest) {
  const auto leaky = [&](const std::string& product) {
    return net(R"(name: "n"
      op { type: "RecurrentNetwork" name: "rnn" input: "x" input: "h0" output: "y" output: "h1"
           [stepnet.recurrent] {
             step_net { op { type: "FC" input: ")" +
               product + R"(" input: "W" output: "u" arg { name: "axis" i: 2 } }
                        op { type: "Mul" input: "h_prev" input: "a" output: "m" }
                        op { type: "Add" input: "m" input: "u" output: "h" } }
             sequence { outer: "x" inner: "x_t" }
             state { input: "h_prev" output: "h" initial: "h0" all: "y" last: "h1" } } }
      op { type: "AveragedLoss" input: "y" output: "loss" })");
  };
  const std::string path = leaky("x_t"), command = "expand " + path + " --gradients --loss loss --learning rtrl";
  const std::string text = expect_command(command, 0, "output: \"rnn/sensitivity/h_prev/W_last\"");
  EXPECT_NE(text.find("output: \"rnn/sensitivity/h_prev/a_last\""), text.npos);
  EXPECT_NE(testing::stepnet(command).err.find("note: a run reads \"rnn/sensitivity/h_prev/W\" where the one before "
                                               "wrote \"rnn/sensitivity/h_prev/W_last\""),
            text.npos);
  EXPECT_EQ(text.find("sensitivity/h_prev/W_grad"), text.npos);
  const std::string one = testing::stepnet(command + " --parameter a").out;
  EXPECT_NE(one.find("sensitivity/h_prev/a_last"), text.npos);
  EXPECT_EQ(one.find("sensitivity/h_prev/W_last"), text.npos);
  expect_command("expand " + path + " --learning rtrl", 2, "--learning is only used with --gradients");
  expect_command(command + " --tangents x", 2, "without --tangents");
  expect_command("expand " + path + " --parameter W", 2, "--parameter is only used with --learning");
  const std::string other = "expand " + leaky("h_prev") + " --gradients --loss loss --learning ";
  expect_command(other + "rtrl", 2, "it multiplies \"h_prev\", which depends on a state");
  expect_command(other + "snap1", 0, "output: \"rnn/sensitivity/h_prev/W_last\"");
}

}  // namespace
}  // namespace stepnet::run_command_test
