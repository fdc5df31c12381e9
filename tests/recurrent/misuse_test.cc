// RecurrentNetwork on sizes of 0 and 1, on step nets that are text with mistakes, and on inputs and scratch objects
// that are not what they should be: it works, or says what is wrong.
#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/recurrent/unrolled.h"
#include "tools/source_path.h"

namespace stepnet::testing::misuse_test {
namespace {

const std::string kFull = source_path("tests/data/sum_cell_full.pbtxt");
const Cell kCell = {{"s = Sum(x, h_prev, p)", "h = Tanh(s)"}, {{"h_prev", "h", "h0", "h_all", "h_last"}}};

Feeds feeds_of(int64_t steps, int64_t batch, int64_t width) {
  return {{"X", normal<double>({steps, batch, width}, 1)},
          {"h0", normal<double>({batch, width}, 2)},
          {"p", normal<double>({1, batch, width}, 3)}};
}

TEST(Misuse, SizesOfZeroAndOneWork) {
  for (const int64_t steps : {0, 1, 2})
    for (const int64_t batch : {0, 1})
      for (const int64_t width : {0, 1}) {
        const Feeds feeds = feeds_of(steps, batch, width);
        const Feeds outside = outside_gradients(kCell, feeds);
        EXPECT_EQ(compare_results(run_with_gradients(load_net(kFull), feeds, outside),
                                  run_unrolled(kCell, feeds, outside), 1e-12),
                  "")
            << steps << " " << batch << " " << width;
      }
}

// The first line.
std::string fact_of(const std::string& text) { return text.substr(0, text.find('\n')); }

// Everything a run of the network and of its gradient needs, in one workspace.
class Pair {
 public:
  Pair() {
    NetDef net = load_net(kFull);
    forward_ = net;
    net.add_external_input("g");
    const GradientResult result =
        add_gradient_operators(net, {.targets = {{"h_all", "g"}}, .wanted = {"X", "h0", "p"}, .stop = {}});
    backward_.set_name("backward");
    for (int i = result.first_gradient_op; i < net.op_size(); ++i) *backward_.add_op() = net.op(i);
    for (const auto& [name, value] : feeds_of(3, 2, 4)) workspace.tensor(name) = value;
    workspace.tensor("g") = normal<double>({3, 2, 4}, 4);
    for (const char* name : {"h_all", "h_last", "rnn/step_workspaces"}) workspace.create(name);
  }

  void run_forward() { run_net_once(forward_, workspace, run_); }
  void run_backward() { run_net_once(backward_, workspace, run_); }
  std::string forward_error() {
    return fact_of(error_of([&] { run_forward(); }));
  }
  std::string backward_error() {
    return fact_of(error_of([&] { run_backward(); }));
  }
  OperatorDef& gradient() { return *backward_.mutable_op(0); }

  Workspace workspace;

 private:
  NetDef forward_, backward_;
  RunContext run_;
};

const std::string kName = "RecurrentNetworkGradient: ";
const std::string kNotRun = kName + "the last input must be the scratch output of a RecurrentNetwork that has run";

TEST(Misuse, GradientWithoutAForwardRun) {
  Pair pair;
  EXPECT_EQ(pair.backward_error(), kNotRun);
  pair.run_forward();
  pair.run_backward();
  pair.run_backward();  // nothing that it needs is gone
}

TEST(Misuse, ScratchThatIsNone) {
  Pair pair;
  pair.run_forward();
  pair.workspace.tensor("rnn/step_workspaces") = Tensor::scalar(1.0);
  EXPECT_EQ(pair.backward_error(), kNotRun);
  pair.workspace.at("rnn/step_workspaces").clear();
  EXPECT_EQ(pair.backward_error(), kNotRun);
  pair.workspace.at("rnn/step_workspaces").emplace<std::string>("text");
  EXPECT_EQ(pair.backward_error(), kNotRun);
  pair.run_forward();
  pair.run_backward();
}

// The other network keeps other values: the backward step net finds none that it needs.
TEST(Misuse, ScratchOfAnotherNetwork) {
  Cell other = {{"h = Mul(h_prev, x)"}, {{"h_prev", "h", "h0", "h_all", "h_last"}}};
  Cell gate = {{"a = Sigmoid(x)", "h = Mul(a, h_prev)"}, {{"h_prev", "h", "h0", "h_all", "h_last"}}};
  const Feeds feeds = feeds_of(3, 2, 4);
  NetDef net = expanded_net(gate, feeds);
  add_gradient_operators(net, {.targets = {{"h_all", ""}}, .wanted = {"X", "h0"}, .stop = {}});
  NetDef swapped = expanded_net(other, feeds);
  for (int i = 1; i < net.op_size(); ++i) *swapped.add_op() = net.op(i);
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
  RunContext run;
  EXPECT_EQ(fact_of(error_of([&] { run_net_once(swapped, workspace, run); })),
            "MatchShape: the step net reads \"a\", but no operator in it writes that, no link shows it, and no blob "
            "outside has that name.");
}

TEST(Misuse, InputsThatChangedSinceTheForwardRun) {
  const std::string was = ", but in the forward run it was [3, 2, 4]";
  for (const Shape& shape : {Shape{5, 2, 4}, Shape{3, 3, 4}, Shape{3}, Shape{}}) {
    Pair pair;
    pair.run_forward();
    pair.workspace.tensor("X") = Tensor::zeros(DType::float64, shape);
    EXPECT_EQ(pair.backward_error(), kName + "the sequence is " + shape.str() + was);
  }
  Pair pair;
  pair.run_forward();
  pair.workspace.tensor("h0") = Tensor();
  EXPECT_EQ(pair.backward_error(), kName + "the input \"h0\" holds nothing yet");
  pair.workspace.tensor("h0") = normal<double>({3, 4});
  EXPECT_EQ(pair.backward_error(), kName + "double[1, 2, 4] cannot be seen as [3, 4]: 8 elements against 12");
  pair.workspace.tensor("h0") = normal<double>({5});
  EXPECT_EQ(pair.backward_error(), kName + "a gradient of double[5] is needed, but double[4] was given");
}

TEST(Misuse, StatesThatAreNotTheForwardRuns) {
  Pair pair;
  pair.run_forward();
  pair.workspace.tensor("rnn/h_prev_states") = Tensor::scalar(1.0);
  EXPECT_EQ(pair.backward_error(),
            kName + "the state \"rnn/h_prev_states\" is now double[], not what the forward run made it");
  pair.workspace.remove("rnn/h_prev_states");
  EXPECT_EQ(pair.backward_error(), kName + "there is no blob \"rnn/h_prev_states\".");
}

TEST(Misuse, GradientsOfTheWrongShape) {
  Pair pair;
  pair.run_forward();
  pair.workspace.tensor("g") = normal<double>({2, 2, 4});
  EXPECT_EQ(pair.backward_error(),
            kName + "the gradient \"g\" of \"h_all\" is double[2, 2, 4], but that output is double[3, 2, 4]");
  pair.workspace.tensor("g") = normal<float>({3, 2, 4});
  EXPECT_EQ(pair.backward_error(),
            kName + "the gradient \"g\" of \"h_all\" is float[3, 2, 4], but that output is double[3, 2, 4]");
}

TEST(Misuse, GradientOperatorWithOtherInputs) {
  Pair few;
  few.run_forward();
  few.gradient().mutable_input()->DeleteSubrange(0, 5);  // the scratch alone
  EXPECT_EQ(few.backward_error(), kName + "\"param\" has 2, but the operator has inputs 0 to 1");
  Pair missing;
  missing.run_forward();
  missing.gradient().mutable_input()->DeleteSubrange(0, 1);  // the gradient
  EXPECT_EQ(missing.backward_error(), kName + "the sequence is [2, 4], but in the forward run it was [3, 2, 4]");
}

TEST(Misuse, ForwardInputs) {
  const std::string name = "RecurrentNetwork: ";
  Pair pair;
  pair.workspace.tensor("X") = normal<double>({3});
  EXPECT_EQ(pair.forward_error(), name + "the sequence \"X\" must be [T, B, ...], not [3]");
  pair.workspace.tensor("X") = Tensor();
  EXPECT_EQ(pair.forward_error(), name + "the input \"X\" holds nothing yet");
  pair.workspace.at("X").emplace<std::string>("text");
  EXPECT_EQ(pair.forward_error().substr(0, 47), name + "a tensor is needed here, not ");
  pair.workspace.tensor("X") = Tensor::zeros(DType::float64, {int64_t{1} << 40, 1, 0});
  pair.workspace.tensor("h0") = Tensor::zeros(DType::float64, {1, 0});
  EXPECT_EQ(pair.forward_error(), name +
                                      "the sequence \"X\" has 1099511627776 timesteps, more than the 2147483647 that "
                                      "can be counted");
  pair.workspace.tensor("X") = normal<double>({3, 2, 4});
  pair.workspace.tensor("h0") = normal<double>({});
  EXPECT_EQ(pair.forward_error(), name + "an initial state has shape [D], [B, D] or [L, B, ...], not []");
  pair.workspace.tensor("h0") = normal<double>({1, 1, 2, 4});
  EXPECT_EQ(pair.forward_error(), name + "the initial state [1, 1, 2, 4] is for a batch of 1, but the sequence's is 2");
  pair.workspace.tensor("h0") = normal<double>({3, 4});
  EXPECT_EQ(pair.forward_error(), name + "the initial state [3, 4] is for a batch of 3, but the sequence's is 2");
  pair.workspace.tensor("h0") = normal<float>({2, 4});
  EXPECT_EQ(pair.forward_error(),
            "Sum: inputs \"x_t\" and \"h_prev\" must have the same type, but are double[1, 2, 4] "
            "and float[1, 2, 4]");
}

// A step net as text in a string, in a file of its own lines.
std::string file_with_step(const std::string& step) {
  std::string escaped;
  for (const char c : step) escaped += c == '\n' ? "\\n" : c == '"' ? "\\\"" : std::string(1, c);
  return "name: \"outer\"\nop {\n  type: \"RecurrentNetwork\" input: \"X\" output: \"s\"\n  arg {\n"
         "    name: \"step_net\"\n    s: \"" +
         escaped + "\"\n  }\n}\n";
}

TEST(Misuse, TextOfAStepNetHasItsPlaceInTheFile) {
  const std::string good = "op {\n  type: \"Tanh\"\n  input: \"x\"\n  output: \"h\"\n}\n";
  EXPECT_TRUE(find_arg(parse_net_text(file_with_step(good)).op(0), "step_net")->has_n());
  const std::pair<std::string, std::string> cases[] = {
      {"op {\n  type: \"Tanh\"\n  input \"x\"\n}\n",
       "Expected \":\", found \"\"x\"\".\n  in  net.pbtxt:6:41, line 3 column 9"},
      {"op {\n  type: \"Tanh\"\n  inputs: \"x\"\n}\n",
       "OperatorDef has no field \"inputs\". Did you mean \"input\"?\n  in  net.pbtxt:6:35, line 3 column 3"},
      {"op {\n  type: \"Tanh\"\n",
       "the text ends, but the { of line 1, column 4 is not closed\n  in  net.pbtxt:6:33, line 3 column 1"},
      {"op {\n  type: \"Tanh\n}\n",
       "String literals cannot cross line boundaries.\n  in  net.pbtxt:6:29, line 2 column 14"},
      {"}", "Expected identifier, got: }\n  in  net.pbtxt:6:9, line 1 column 1"},
  };
  for (const auto& [step, message] : cases)
    EXPECT_EQ(error_of([&step = step] { parse_net_text(file_with_step(step), "net.pbtxt"); }),
              message + " of the text in argument \"step_net\"");
}

// The same text in a net that was built in code.
TEST(Misuse, TextOfAStepNetHasItsPlaceInTheArgument) {
  NetDef net = load_net(kFull);
  for (Argument& arg : *net.mutable_op(0)->mutable_arg())
    if (arg.name() == "step_net") arg = make_arg("step_net", "op {\n  type: \"Tanh\"\n  input \"x\"\n}\n");
  Workspace workspace;
  EXPECT_EQ(fact_of(error_of([&] { Net(net, workspace); })),
            "RecurrentNetwork: the text in argument \"step_net\" is not a net: line 3 column 9: Expected \":\", found "
            "\"\"x\"\".");
}

}  // namespace
}  // namespace stepnet::testing::misuse_test
