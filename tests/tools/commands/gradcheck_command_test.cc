// `stepnet gradcheck` and `stepnet ops` as a user sees them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "stepnet/device.h"
#include "stepnet/op_spec.h"
#include "tests/core/temp_folder.h"
#include "tests/tools/command.h"
#include "tools/source_path.h"

namespace stepnet::gradcheck_command_test {
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
  expect_command("gradcheck Tanh --precision bfloat16", 0, "right");
  expect_command("gradcheck Tanh --precision float16 --input X=2,3", 2, "by their own examples");
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
  expect_command("gradcheck FC --input X=2,3", 2, "error: FC needs --input W=SIZE,SIZE,... (");
  expect_command("gradcheck Tanh --input X=2 --input Z=2", 2, "error: Tanh has no input \"Z\"");
  expect_command("gradcheck Tanh --input X=2,a..3", 2, "error: \"a..3\" is no range");
  expect_command("gradcheck Tanh --input X=-2", 2, "-2");
  expect_command("gradcheck FC --input X=2,3 --input W=4,3 --input b=4 --arg axes=1", 2, "FC has no argument \"axes\"");
  expect_command("gradcheck FC --input X=2,3 --input W=4,3 --input b=4 --arg axis=x", 2,
                 "error: \"x\" is no whole number");
  expect_command("gradcheck FC --input X=2,3 --input W=4,2 --input b=4", 2, "[4, 2]");
  const std::string fed = "gradcheck negative.pbtxt --loss y";
  expect_command(
      fed, 2,
      "error: the net reads \"x\", which holds nothing\n  in  negative.pbtxt:4:1\n  fix give it with --input "
      "x=SIZE,SIZE,... or --feed x=FILE.npy\n");
  expect_command(fed + " --input x=2 --input z=2", 2, "\"z\": the net reads no such blob from outside");
  expect_command("gradcheck add.pbtxt --loss c", 2, "error: there is no input whose gradient is to be checked");
  expect_command("gradcheck add.pbtxt", 2, "--loss BLOB");
}

TEST(GradcheckCommand, OfAnOperatorsOwnExamples) {
  const std::string printed = expect_command("gradcheck FC", 0, "right");
  for (const char* text :
       {"FC                                     1     2", "FC                                     2     2"})
    EXPECT_NE(printed.find(text), std::string::npos) << printed;
  expect_command("gradcheck FC --tolerance 1e-30", 1, "WRONG");
  expect_command("gradcheck", 2, "an operator, a file with a net, or --all");
  expect_command("gradcheck FC --all", 2, "an operator, a file with a net, or --all");
}

// Fails on an operator that has no example, whose gradient is wrong, or that cannot be differentiated twice.
TEST(GradcheckCommand, OfAllOperators) {
  std::istringstream lines(expect_command("gradcheck --all", 0, "LSTMUnit"));
  for (std::string line; std::getline(lines, line);) {
    const std::string type = line.substr(0, line.find(' '));
    // Networks whose backward step nets have none, and batch norm that several ranks make together.
    const std::set<std::string> once = {"RecurrentNetwork", "Recurrent",    "RNN", "GRU", "LSTM",
                                        "SyncBatchNorm",    "SyncSpatialBN"};
    EXPECT_TRUE(once.contains(type) || line.find("not twice by") == line.npos) << line;
  }
}

const char* const kLstmInputs =
    " --input x=3,2,4 --input h0=1,2,5 --input c0=1,2,5 --input W_x=20,4 --input b_x=20 --input W_h=20,5 --input "
    "b_h=20";

TEST(GradcheckCommand, OfHessians) {
  for (const char* what : {"Tanh --input X=2,3", "../../tools/examples/lstm.pbtxt --loss h_all --directions 2"}) {
    const std::string inputs = *what == 'T' ? "" : kLstmInputs;
    const std::string text = expect_command(fmt::format("gradcheck --hessian {}{}", what, inputs), 0, "right");
    for (const char* row : {"symmetry", "reverse over forward", "forward over reverse", "differences"})
      EXPECT_NE(text.find(std::string("Hessian, ") + row), std::string::npos) << text;
  }
  const std::string text = expect_command("gradcheck Tanh --input X=2,3 --hessian --tolerance 1e-30", 1, "WRONG");
  EXPECT_TRUE(std::regex_search(text, std::regex("Hessian, symmetry .* right"))) << text;
}

TEST(GradcheckCommand, OfTheHessiansOfExamples) {
  for (const char* type : {"FC", "LayerNorm", "RecurrentNetwork", "LSTM", "Recurrent"}) {
    const auto json = nlohmann::json::parse(expect_command(fmt::format("gradcheck {} --hessian --json", type), 0, "{"));
    EXPECT_EQ(json["right"], true) << type;
    for (const auto& check : json["checks"]) {
      std::map<std::string, int> rows;
      for (const auto& row : check["report"]["rows"]) ++rows[row["check"]];
      const bool has_second = check["target"] != "Recurrent";
      EXPECT_EQ(rows["hessian"], has_second ? 4 : 0) << type;
      EXPECT_EQ(check["report"]["refused"].empty(), has_second) << type;
    }
  }
}

TEST(GradcheckCommand, AsJson) {
  const auto json = nlohmann::json::parse(
      stepnet("gradcheck Tanh --input X=2,3 --order 2 --directions 3 --seed 7 --tolerance 1e-6 --json").out);
  EXPECT_EQ(json["right"], true);
  const nlohmann::json options = {
      {"order", 2},        {"forward", false}, {"hessian", false},      {"directions", 3}, {"step", 1e-5},
      {"tolerance", 1e-6}, {"seed", 7},        {"many_elements", 2000}, {"device", "cpu"}, {"precision", "double"}};
  EXPECT_EQ(json["options"], options);
  ASSERT_EQ(json["checks"].size(), 1);
  EXPECT_EQ(json["checks"][0]["target"], "Tanh");
  EXPECT_TRUE(json["checks"][0]["example"].is_null());
  EXPECT_EQ(json["checks"][0]["report"]["rows"].size(), 3);
  EXPECT_EQ(json["checks"][0]["report"]["rows"][0]["input"], "X");
  const auto examples = nlohmann::json::parse(stepnet("gradcheck FC --json").out);
  EXPECT_EQ(examples["checks"][1]["target"], "FC");
  EXPECT_EQ(examples["checks"][1]["example"], 2);
  const auto half = nlohmann::json::parse(stepnet("gradcheck Tanh --precision bfloat16 --json").out);
  EXPECT_EQ(half["options"]["precision"], "bfloat16");
  EXPECT_EQ(half["checks"][0]["report"]["rows"][0]["input"], "outputs");
}

TEST(GradcheckCommand, AsJsonEndsWith1WhereItIsWrong) {
  const Outcome outcome = stepnet("gradcheck Tanh --input X=2,3 --tolerance 1e-30 --json");
  EXPECT_EQ(outcome.code, 1);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["right"], false);
  EXPECT_EQ(json["checks"][0]["report"]["rows"][0]["right"], false);
  const Outcome mistake = stepnet("gradcheck Tahn --input X=2 --json");
  EXPECT_EQ(mistake.code, 2);
  EXPECT_EQ(mistake.out, "");
}

TEST(GradcheckCommand, NamesOperatorsThatAreWrong) {
  const std::string call = fmt::format(
      "gradcheck ../../tools/examples/lstm.pbtxt --loss h_all --directions 1 --tolerance 1e-30{}", kLstmInputs);
  const std::string path = "op 0 (RecurrentNetwork) \"h_all\", step net op 3 (LSTMUnit) \"h\"";
  expect_command(call, 1, path + " is wrong alone: ");
  const auto json = nlohmann::json::parse(stepnet(call + " --json").out);
  const auto& blamed = json["checks"][0]["report"]["blamed"];
  EXPECT_TRUE(std::any_of(blamed.begin(), blamed.end(), [&](const auto& op) { return op["path"] == path; })) << blamed;
}

TEST(GradcheckCommand, TriesDirectionsOfLargeInputs) {
  expect_command("gradcheck Tanh --input X=3000", 0, "right, along directions: 3000 elements");
  const std::string all = expect_command("gradcheck Tanh --input X=3000 --directions 0", 0, "   3000 ");
  EXPECT_EQ(all.find("along directions"), std::string::npos) << all;
  EXPECT_NE(stepnet("gradcheck --help").out.find("16 of inputs of more than 2000 elements"), std::string::npos);
}

TEST(GradcheckCommand, RefusesOptionsThatWouldChangeNothing) {
  for (const char* call :
       {"--all --input X=2", "--all --outputs 2", "--all --loss y", "FC --outputs 2", "Tanh --input X=2 --loss y",
        "Tanh --input X=2 --root .", "Tanh --precision float16 --order 2", "Tanh --precision float16 --hessian",
        "--all --precision bfloat16 --directions 3", "add.pbtxt --loss c --outputs 2"})
    expect_command(fmt::format("gradcheck {}", call), 2, "would change nothing");
  expect_command("gradcheck Tanh --input X=2 --directions -1", 2, "--directions");
}

TEST(GradcheckCommand, OnADeviceThatIsNotThere) {
  if (device_offered(DeviceKind::cuda)) GTEST_SKIP() << "this machine has a GPU";
  for (const char* what : {"Tanh --input X=2,3", "--all", "FC"})
    expect_command(fmt::format("gradcheck --device cuda {}", what), 2, "cuda:0");
}

TEST(OpsCommand, ListsAllAndShowsOne) {
  const Outcome all = stepnet("ops");
  EXPECT_EQ(all.code, 0);
  EXPECT_NE(all.out.find("LSTMUnit "), std::string::npos);
  const Outcome one = stepnet("ops FC");
  for (const char* word : {"FC: ", "Inputs:", "axis_w", "Derivatives:", "double, float", "reads", "Mixed precision"})
    EXPECT_NE(one.out.find(word), std::string::npos) << word << " in " << one.text();
  expect_command("ops Tahn", 2, "Tanh");
}

TEST(OpsCommand, NothingIsLeftUndocumented) {
  for (const std::string& type : op_types()) {
    const OpSpec& spec = op_spec(type);
    EXPECT_FALSE(spec.doc.empty()) << type;
    for (const auto* params : {&spec.inputs, &spec.outputs})
      for (const ParamSpec& p : *params) EXPECT_FALSE(p.doc.empty()) << type << " " << p.name;
    for (const ArgSpec& arg : spec.args) EXPECT_FALSE(arg.doc.empty()) << type << " " << arg.name;
  }
}

TEST(OpsCommand, ListsByFamily) {
  const std::string text = stepnet("ops").out;
  const size_t products = text.find("Products:\n"), norm = text.find("Normalisation:\n");
  for (const size_t at : {text.find("  FC "), text.find("    FCGradient "), text.find("  MatMul ")}) {
    EXPECT_GT(at, products);
    EXPECT_LT(at, norm);
  }
}

TEST(OpsCommand, PrintsGradientsAfterTheirOperator) {
  const std::string text = stepnet("ops LSTMUnit").out;
  ASSERT_TRUE(text.starts_with("LSTMUnit: "));
  EXPECT_NE(text.find("\nLSTMUnitGradient: "), std::string::npos);
  EXPECT_TRUE(stepnet("ops LSTMUnitGradient").out.starts_with("LSTMUnitGradient: "));
  EXPECT_EQ(stepnet("ops Softmax").out.find("SoftmaxLossTargetGradient: "), std::string::npos);
}

TEST(OpsCommand, TheReferencePageHasEachOperatorOnceInItsFamily) {
  const Outcome page = stepnet("ops --markdown");
  EXPECT_EQ(page.code, 0);
  EXPECT_EQ(page.out.find("|  |"), std::string::npos);
  EXPECT_EQ(page.out.find("| - |"), std::string::npos) << page.out.substr(page.out.find("| - |") - 200, 300);
  int count = 0;
  std::istringstream list(stepnet("ops").out);
  for (std::string line; std::getline(list, line);) {
    if (!line.starts_with("  ")) continue;
    std::istringstream words(line);
    std::string type;
    words >> type;
    ++count;
    const size_t heading = page.out.find(fmt::format("# {}\n", type));
    ASSERT_NE(heading, std::string::npos) << type;
    EXPECT_EQ(page.out.find(fmt::format("# {}\n", type), heading + 1), std::string::npos) << type;
  }
  EXPECT_GT(count, 280);
  const size_t gradient = page.out.find("<details><summary>TanhGradient</summary>\n\n#### TanhGradient\n");
  EXPECT_GT(gradient, page.out.find("### Tanh\n"));
  EXPECT_LT(gradient, page.out.find("### TruncDiv\n"));
  EXPECT_GT(page.out.find("### Tanh\n"), page.out.find("## Element by element\n"));
}

// Operators of folders that the reference has no title for would stand at its end.
TEST(OpsCommand, EachFamilyHasATitle) {
  const std::string page = stepnet("ops --markdown").out;
  const size_t control = page.find("\n## Control\n");
  ASSERT_NE(control, std::string::npos);
  EXPECT_EQ(page.find("\n## ", control + 1), std::string::npos);
}

TEST(OpsCommand, PrintsWhatIsAcceptedAndRefused) {
  const std::string text = stepnet("ops SoftmaxWithLoss").out;
  for (const char* line :
       {"\n  order +refused, unless it is \"NCHW\" +it would put the classes into",
        "\n  average_by_batch_size +refused, unless it is 0 +it would divide the loss by the number"})
    EXPECT_TRUE(std::regex_search(text, std::regex(line))) << text;
  const std::regex accepted("\n  float16_compute +accepted +sums of products of a half type are in float\n");
  EXPECT_TRUE(std::regex_search(stepnet("ops FC").out, accepted));
}

TEST(OpsCommand, ThePageOnCompatibilityHasEveryOperatorOfTheFormat) {
  const Outcome page = stepnet("ops --compatibility");
  EXPECT_EQ(page.code, 0);
  EXPECT_EQ(page.out.find("|  |"), std::string::npos);
  EXPECT_EQ(page.out.find("| - |"), std::string::npos);
  for (const char* row :
       {"\n### Softmax\n\n| argument | is | what it says, or why |\n| --- | --- | --- |\n| axis | implemented | ",
        "\n| ws_nbytes_limit | a hint to an engine |\n", "\n| channels | Stepnet's own | ",
        "\n| float16_compute | accepted | ", "\n| *.rename | accepted | ",
        "\n| average_by_batch_size | refused | it would divide the loss by the number of rows, not by their weights' "
        "sum; "
        "accepted if it is 0 |\n"})
    EXPECT_NE(page.out.find(row), std::string::npos) << row;
  const size_t plain = page.out.find("\n## Operators without arguments of their own\n");
  const size_t own = page.out.find("\n## Stepnet's own operators\n");
  ASSERT_NE(plain, std::string::npos);
  ASSERT_NE(own, std::string::npos);
  EXPECT_GT(page.out.find("Tanh", plain), plain);
  EXPECT_GT(page.out.find(" LogSoftmax,"), own);
  EXPECT_EQ(page.out.find("### LogSoftmax\n"), std::string::npos);
  const std::string lists = page.out.substr(plain, page.out.find("\n## ", plain + 1) - plain) + page.out.substr(own);
  std::istringstream list(stepnet("ops").out);
  for (std::string line; std::getline(list, line);) {
    if (!line.starts_with("  ")) continue;
    std::istringstream words(line);
    std::string type;
    words >> type;
    const bool has_part = page.out.find("\n### " + type + "\n") != std::string::npos;
    EXPECT_NE(has_part, std::regex_search(lists, std::regex("[ \n]" + type + "[,.]"))) << type;
  }
  expect_command("ops --compatibility --markdown", 2, "--markdown");
}

TEST(OpsCommand, TheTypedCallsFitTheLines) {
  const Outcome header = stepnet("ops --cpp");
  EXPECT_EQ(header.code, 0);
  for (size_t begin = 0; begin < header.out.size(); begin = header.out.find('\n', begin) + 1)
    EXPECT_LE(header.out.find('\n', begin) - begin, 120U) << header.out.substr(begin, 200);
  expect_command("ops --cpp --markdown", 2, "--markdown");
}

TEST(Plugins, AreLoadedAndChecked) {
  const std::string plugin = plugin_path();
  expect_command(fmt::format("--plugin {} gradcheck ScaleBy --input X=2,3 --arg factor=3", plugin), 0, "right");
  expect_command(fmt::format("--plugin {} ops ScaleBy", plugin), 0, "Multiplies every element");
  expect_command("--plugin nowhere.so ops", 2, "error: cannot load the plugin: nowhere.so");
}

}  // namespace
}  // namespace stepnet::gradcheck_command_test
