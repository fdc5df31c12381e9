// Data and step nets that a RecurrentNetwork cannot run on, with the whole of what is said: the fact, the timestep and
// the step net, the operator in it and its blobs, and the operator outside.
#include <gtest/gtest.h>

#include "stepnet/net.h"
#include "tests/recurrent/full_form.h"

namespace stepnet::testing::bad_input_test {
namespace {

FullForm cell(Lines step) {
  return {.inputs = {"X", "h0"},
          .outputs = {"h_all"},
          .states = {"S = h0"},
          .links = {"h_prev = S[0]", "h = S[1]", "x = X[0]"},
          .views = {"h_all = S[1]"},
          .step = std::move(step)};
}

Feeds feeds_of(int64_t steps = 4, int64_t batch = 2) {
  return {{"X", normal<double>({steps, batch, 3}, 1)}, {"h0", normal<double>({batch, 3}, 2)}};
}

std::string error_of_run(const NetDef& net, const Feeds& feeds) {
  return error_of([&] {
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value;
    RunContext run;
    run_net_once(net, workspace, run);
  });
}

// Where the step net's operator stands, and the step net's own place.
std::string in_step(int op, const std::string& line, const std::string& when = "") {
  return fmt::format(
      "\n  in  operator {} of net \"step\"\n  op  {}{}\n  in  RecurrentNetwork \"h_all\" of net \"outer\"", op, line,
      when.empty() ? "" : "\n  in  " + when + " of step net \"step\"");
}

const std::string kOutside = "\n  in  operator 0 of net \"outer\"\n  op  h_all, steps = RecurrentNetwork(X, h0)";

std::string error_of_form(const FullForm& form, const Feeds& feeds) {
  return error_of_run(full_net(form, feeds), feeds);
}

TEST(BadInput, AStateOfAnotherShapeThanItsRow) {
  EXPECT_EQ(error_of_form(cell({"w, sizes = Concat(x, h_prev) axis=2", "h = Tanh(w)"}), feeds_of()),
            "Tanh: \"h\" is linked to rows of double[5, 2, 3], one timestep of which is double[1, 2, 3], but the step "
            "net makes it double[1, 2, 6]" +
                in_step(1, "h = Tanh(w)"));
}

// The shape is an input's values: nobody knows it before the first timestep.
TEST(BadInput, AStateOfAShapeThatDependsOnData) {
  FullForm form = cell({"u, old = Reshape(X, shape)", "h = Tanh(u)"});
  form.inputs.emplace_back("shape");
  Feeds feeds = feeds_of();
  feeds.emplace_back("shape", Tensor::of<int32_t>({2}, {-1, 3}));
  EXPECT_EQ(
      error_of_form(form, feeds),
      "Tanh: \"h\" is rows of double[5, 2, 3], one timestep of which is double[1, 2, 3], but the step net makes it "
      "double[8, 3]" +
          in_step(1, "h = Tanh(u)", "timestep 0"));
}

TEST(BadInput, AStateOfAnotherType) {
  NetDef net = full_net(cell({"h = Cast(x)"}), feeds_of());
  for (Argument& arg : *net.mutable_op(0)->mutable_arg())
    if (arg.name() == "step_net") *arg.mutable_n()->mutable_op(0)->add_arg() = make_arg("to", std::string("float"));
  EXPECT_EQ(error_of_run(net, feeds_of()),
            "Cast: \"h\" is linked to rows of double[5, 2, 3], one timestep of which is double[1, 2, 3], but the step "
            "net makes it float[1, 2, 3]" +
                in_step(0, "h = Cast(x)"));
}

TEST(BadInput, ALinkPastTheEnd) {
  FullForm form = cell({"w = Tanh(both)", "h = Sum(h_prev, x)"});
  form.links.emplace_back("both = X[0:2]");
  const std::string shapes = ", X is double[4, 2, 3], h0 is double[2, 3]";
  EXPECT_EQ(error_of_form(form, feeds_of()),
            "RecurrentNetwork: the step blob \"both\" is linked to rows 0 to 4 of a tensor double[4, 2, 3], which has "
            "only 4 rows" +
                kOutside + shapes);
  form.links.back() = "both = S[0:3]";
  EXPECT_EQ(error_of_form(form, feeds_of()),
            "RecurrentNetwork: the step blob \"both\" is linked to rows 0 to 5 of a tensor double[5, 2, 3], which has "
            "only 5 rows" +
                kOutside + shapes);
  // Of a state whose rows are taken in turn: of which there are two, and of which it has five.
  form.links.back() = "both = S[2]";
  form.views = {"h_all = S[-1]"};
  EXPECT_EQ(error_of_form(form, feeds_of()),
            "RecurrentNetwork: the step blob \"both\" is linked to rows 2 to 5 of a tensor double[5, 2, 3], which has "
            "only 5 rows" +
                kOutside + shapes);
}

TEST(BadInput, AStepNetThatWritesItsInput) {
  EXPECT_EQ(
      error_of_form(cell({"x = Tanh(x)", "h = Sum(h_prev, x)"}), feeds_of()),
      "RecurrentNetwork: the step net writes \"x\", which is linked to \"X\", an input of the operator" + kOutside);
}

TEST(BadInput, AStepNetThatReadsWhatIsNowhere) {
  EXPECT_EQ(error_of_form(cell({"s = Sum(x, h_prev)", "h = Mul(s, weights)"}), feeds_of()),
            "Mul: the step net reads \"weights\", but no operator in it writes that, no link shows it, and no blob "
            "outside has that name." +
                in_step(1, "h = Mul(s, weights)"));
}

TEST(BadInput, ACyclicStepNet) {
  EXPECT_EQ(error_of_form(cell({"a = Sum(b, x)", "b = Tanh(a)", "h = Sum(b, h_prev)"}), feeds_of()),
            "Sum: the step net reads \"b\" before an operator writes it" + in_step(0, "a = Sum(b, x)"));
}

TEST(BadInput, AnOperatorThatFailsInATimestep) {
  EXPECT_EQ(
      error_of_form(cell({"row = Gather(h_prev, timestep)", "h = Sum(row, x)"}), feeds_of()),
      "Gather: index 0 is 1, which is outside of 0 to 0" + in_step(0, "row = Gather(h_prev, timestep)", "timestep 1"));
}

// It depends on the sequence alone and so runs in front of a block of timesteps.
TEST(BadInput, AnOperatorThatFailsInABlock) {
  FullForm form = cell({"e = LabelCrossEntropy(x, label)", "h = Mul(h_prev, e) broadcast=1"});
  form.inputs.emplace_back("Y");
  form.links.emplace_back("label = Y[0]");
  Feeds feeds = {{"X", uniform<double>({200, 1, 3}, 0.1, 1)},
                 {"h0", normal<double>({1, 3})},
                 {"Y", integers<int32_t>({200, 1}, 0, 2, 1)}};
  const NetDef net = full_net(form, feeds);
  const std::string line = "e = LabelCrossEntropy(x, label)";
  feeds[2].second.data<int32_t>()[140] = 3;
  EXPECT_EQ(error_of_run(net, feeds), "LabelCrossEntropy: the label of row 12 is 3, but must be in 0..2" +
                                          in_step(0, line, "timesteps 128 to 199"));
  NetDef unhoisted = net;
  *unhoisted.mutable_op(0)->add_arg() = make_arg("disabled_passes", std::vector<std::string>{"hoist"});
  EXPECT_EQ(error_of_run(unhoisted, feeds),
            "LabelCrossEntropy: the label of row 0 is 3, but must be in 0..2" + in_step(0, line, "timestep 140"));
}

// After an error the next run starts anew.
TEST(BadInput, IsForgottenInTheNextRun) {
  FullForm form = cell({"row = Gather(T, i)", "h = Sum(row, h_prev)"});
  form.inputs.emplace_back("T");
  form.links[2] = "i = X[0]";
  Workspace workspace;
  workspace.tensor("X") = Tensor::of<int32_t>({3, 2}, {0, 1, 1, 2, 0, 0});
  workspace.tensor("T") = normal<double>({2, 3}, 1);
  workspace.tensor("h0") = normal<double>({2, 3}, 2);
  Net net(full_net(form, {{"X", {}}, {"T", {}}, {"h0", {}}}), workspace);
  RunContext run;
  const std::string text = error_of([&] { net.run(run); });
  EXPECT_EQ(text.substr(0, text.find('\n')), "Gather: index 1 is 2, which is outside of 0 to 1");
  workspace.tensor("X").data<int32_t>()[3] = 1;
  net.run(run);
  const Tensor &table = workspace.fetch("T"), &first = workspace.fetch("h0");
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(workspace.fetch("h_all").data<double>()[2 * 6 + i],
                first.data<double>()[i] + 2 * table.data<double>()[i] + table.data<double>()[3 + i], 1e-14);
}

TEST(BadInput, LengthsOfRows) {
  const std::string line = "h, c = LSTMUnit(h_prev, h_prev, gates, lengths, timestep)";
  FullForm form = cell({line});
  form.inputs = {"X", "h0", "gates", "lengths"};
  Feeds feeds = feeds_of();
  feeds.emplace_back("gates", normal<double>({1, 2, 12}, 3));
  feeds.emplace_back("lengths", Tensor::of<int32_t>({2}, {3, -1}));
  EXPECT_EQ(error_of_form(form, feeds),
            "LSTMUnit: seq_lengths has -1 for row 1; a length is at least 0" + in_step(0, line, "timestep 0"));
  feeds.back().second = Tensor::of<int32_t>({3}, {3, 1, 1});
  EXPECT_EQ(error_of_form(form, feeds),
            "LSTMUnit: seq_lengths must be [2], one for each row of C_prev [1, 2, 3], but is [3]" + in_step(0, line));
  feeds.back().second = Tensor::of<int64_t>({2}, {3, 1});
  EXPECT_NE(error_of_form(form, feeds).find("lengths"), std::string::npos);
  feeds.back().second = Tensor::of<int32_t>({2}, {1000, 4});  // longer than the sequence is fine
  run_with_gradients(full_net(form, feeds), feeds, {});
}

TEST(BadInput, InitialStates) {
  const FullForm form = cell({"h = Sum(h_prev, x)"});
  Feeds feeds = feeds_of();
  feeds[1].second = normal<double>({3, 3});
  EXPECT_EQ(error_of_form(form, feeds),
            "RecurrentNetwork: the initial state [3, 3] is for a batch of 3, but the sequence's is 2" + kOutside +
                ", X is double[4, 2, 3], h0 is double[3, 3]");
  feeds[1].second = normal<double>({2, 5});
  EXPECT_EQ(error_of_form(form, feeds), "Sum: inputs 0 and 1 must have one shape, but are [1, 2, 5] and [1, 2, 3]" +
                                            in_step(0, "h = Sum(h_prev, x)"));
  feeds[1].second = normal<float>({2, 3});
  EXPECT_EQ(error_of_form(form, feeds),
            "Sum: inputs \"h_prev\" and \"x\" must have the same type, but are float[1, 2, 3] and double[1, 2, 3]" +
                in_step(0, "h = Sum(h_prev, x)"));
}

TEST(BadInput, NoTimestepsAndNoRowToShow) {
  FullForm form = cell({"h = Tanh(x)"});
  form.links = {"h = S[0]", "x = X[0]"};
  form.views = {"h_all = S[-1]"};
  const Feeds feeds = {{"X", normal<double>({0, 2, 3})}, {"h0", Tensor::zeros(DType::float64, {0, 2, 3})}};
  EXPECT_EQ(error_of_form(form, feeds),
            "RecurrentNetwork: \"alias_offset\" of \"h_all\" is -1, but the state \"S\" is double[0, 2, 3]" + kOutside +
                ", X is double[0, 2, 3], h0 is double[0, 2, 3]");
}

// An operator of the backward step net: the gradient of what the forward step net gathered.
TEST(BadInput, AnOperatorThatFailsBackward) {
  FullForm form = cell({"h = Mul(h_prev, x)"});
  form.inputs.emplace_back("i");
  form.backward = {"row = Gather(h_prev, i)", "x_grad = Mul(h_grad, row)", "h_prev_grad = Mul(h_grad, x)"};
  form.backward_links = {"h_grad = S_grad[1]", "h_prev_grad = S_grad[0]", "x_grad = X_grad[0]"};
  form.outputs_with_grads = {0};
  Feeds feeds = feeds_of();
  feeds.emplace_back("i", Tensor::of<int32_t>({1}, {2}));
  EXPECT_EQ(error_of([&] {
              run_with_gradients(full_net(form, feeds), feeds, {{"h_all", normal<double>({4, 2, 3}, 4)}});
            }),
            "Gather: index 0 is 2, which is outside of 0 to 0\n"
            "  in  operator 0 of net \"backward_step\"\n"
            "  op  row = Gather(h_prev, i)\n"
            "  in  timestep 3 of step net \"backward_step\"\n"
            "  in  RecurrentNetworkGradient \"X_grad\" of net \"outer\"");
}

}  // namespace
}  // namespace stepnet::testing::bad_input_test
