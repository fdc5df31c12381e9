// Nets in full form with the wiring that the public format's own builder gives them, each against the same cell
// unrolled by hand: gradients that nobody writes and that are linked under another name, gradients that are added to a
// linked one, references with gradients, states that are outputs themselves, and gradients renamed afterwards.
#include <gtest/gtest.h>

#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "tests/recurrent/full_form.h"

namespace stepnet::testing::public_nets_test {
namespace {

struct PublicNet {
  std::string name;
  FullForm form;
  Cell cell;  // the same
};

void PrintTo(const PublicNet& n, std::ostream* out) { *out << n.name; }

const CellState kH = {"h_prev", "h", "h0", "h_all", "h_last"};
const CellState kC = {"c_prev", "c", "c0", "c_all", "c_last"};

// One state and no parameters.
FullForm one_state(Lines step, Lines backward, const std::string& state_gradient, const std::string& input_gradient) {
  return {.inputs = {"X", "h0"},
          .outputs = {"h_all", "h_last"},
          .states = {"S = h0"},
          .links = {"h_prev = S[0]", "h = S[1]", "x = X[0]"},
          .views = {"h_all = S[1]", "h_last = S[-1]"},
          .step = std::move(step),
          .backward = std::move(backward),
          .backward_links = {"h_grad = S_grad[1]", state_gradient + " = S_grad[0]", input_gradient + " = X_grad[0]"},
          .outputs_with_grads = {0, 1}};
}

FullForm two_states(Lines step, Lines backward) {
  FullForm form = one_state(std::move(step), std::move(backward), "h_prev_grad", "x_grad");
  form.inputs = {"X", "h0", "c0"};
  form.outputs = {"h_all", "h_last", "c_all", "c_last"};
  form.states = {"S = h0", "C = c0"};
  form.links.insert(form.links.end(), {"c_prev = C[0]", "c = C[1]"});
  form.views.insert(form.views.end(), {"c_all = C[1]", "c_last = C[-1]"});
  form.backward_links.insert(form.backward_links.end(), {"c_grad = C_grad[1]", "c_prev_grad = C_grad[0]"});
  form.outputs_with_grads = {0, 1, 2, 3};
  return form;
}

FullForm elman() {
  FullForm form = one_state(
      {"s = FC(h_prev, W, b) axis=2", "s = Sum(s, x)", "h = Tanh(s)"},
      {"s_grad = TanhGradient(h, h_grad)", "W_grad, b_grad, h_prev_grad = FCGradient(h_prev, W, s_grad) axis=2"},
      "h_prev_grad", "s_grad");
  form.inputs = {"X", "h0", "W", "b"};
  form.params = {"W = W_grad", "b = b_grad"};
  return form;
}

// A blob that every timestep reads whole, such as an encoder's output.
FullForm with_reference() {
  FullForm form = one_state({"q = Mul(h_prev, E)", "h = Sum(q, x)"},
                            {"E_grad = Mul(h_grad, h_prev)", "h_prev_grad = Mul(h_grad, E)"}, "h_prev_grad", "h_grad");
  form.inputs = {"X", "h0", "E"};
  form.params = {"E = E_grad"};
  // h_grad is linked twice, so the sequence's gradient is a blob of its own.
  form.backward.emplace_back("x_grad = Copy(h_grad)");
  form.backward_links[2] = "x_grad = X_grad[0]";
  return form;
}

std::vector<PublicNet> public_nets() {
  const Lines elman_step = {"s = FC(h_prev, W, b) axis=2", "p = Sum(s, x)", "h = Tanh(p)"};
  return {
      {"SumMul",
       one_state({"s = Sum(x, h_prev)", "h = Mul(x, s)"},
                 {"x_grad = Mul(h_grad, s)", "s_grad = Mul(h_grad, x)", "x_grad = Sum(x_grad, s_grad)"}, "s_grad",
                 "x_grad"),
       {{"s = Sum(x, h_prev)", "h = Mul(x, s)"}, {kH}}},
      {"Mul",
       one_state({"h = Mul(x, h_prev)"}, {"x_grad = Mul(h_grad, h_prev)", "h_prev_grad = Mul(h_grad, x)"},
                 "h_prev_grad", "x_grad"),
       {{"h = Mul(x, h_prev)"}, {kH}}},
      {"Accumulated",
       two_states({"h = Mul(x, h_prev)", "c = Mul(h, c_prev)"},
                  {"h_grad_accum = Mul(c_grad, c_prev)", "h_grad = Sum(h_grad, h_grad_accum)",
                   "c_prev_grad = Mul(c_grad, h)", "x_grad = Mul(h_grad, h_prev)", "h_prev_grad = Mul(h_grad, x)"}),
       {{"h = Mul(x, h_prev)", "c = Mul(h, c_prev)"}, {kH, kC}}},
      {"Elman", elman(), {elman_step, {kH}}},
      {"Reference", with_reference(), {{"q = Mul(h_prev, E)", "h = Sum(q, x)"}, {kH}}},
  };
}

Feeds feeds_of(const FullForm& form, int64_t steps, int64_t batch) {
  Feeds feeds = {{"X", normal<double>({steps, batch, 3}, 1)}};
  const std::map<std::string, Shape> shapes = {
      {"h0", {batch, 3}}, {"c0", {1, batch, 3}}, {"W", {3, 3}}, {"b", {3}}, {"E", {1, batch, 3}}};
  for (size_t i = 1; i < form.inputs.size(); ++i)
    feeds.emplace_back(form.inputs[i], normal<double>(shapes.at(form.inputs[i]), 1 + i));
  return feeds;
}

class PublicNets : public ::testing::TestWithParam<PublicNet> {};

std::string check(const FullForm& form, Cell cell, int64_t steps, int64_t batch) {
  cell.differentiated.clear();
  for (const int64_t output : form.outputs_with_grads) cell.differentiated.push_back(form.outputs[output]);
  const Feeds feeds = feeds_of(form, steps, batch);
  const Feeds outside = outside_gradients(cell, feeds);
  return compare_results(run_with_gradients(full_net(form, feeds), feeds, outside), run_unrolled(cell, feeds, outside),
                         1e-10);
}

TEST_P(PublicNets, EqualTheUnrolledNet) {
  const auto& [name, form, cell] = GetParam();
  for (const int64_t steps : {0, 1, 2, 4})
    for (const int64_t batch : {0, 1, 5}) EXPECT_EQ(check(form, cell, steps, batch), "") << steps << " " << batch;
  EXPECT_EQ(check(form, cell, 7, 50), "");
}

TEST_P(PublicNets, WithSomeOutputsGradients) {
  auto [name, form, cell] = GetParam();
  std::vector<std::vector<int64_t>> choices = {{0}, {1}, {0, 1}, {1, 0}};
  if (form.states.size() > 1) choices.insert(choices.end(), {{2}, {0, 2}, {1, 3}, {3, 0}});
  for (const auto& choice : choices) {
    form.outputs_with_grads = choice;
    EXPECT_EQ(check(form, cell, 4, 2), "") << fmt::format("{}", fmt::join(choice, ", "));
  }
}

TEST_P(PublicNets, OfOlderGenerations) {
  auto [name, form, cell] = GetParam();
  for (const bool text : {false, true})
    for (const bool unnamed : {false, true}) {
      form.text = text;
      form.unnamed_params = unnamed;
      EXPECT_EQ(check(form, cell, 4, 2), "") << text << " " << unnamed;
    }
}

INSTANTIATE_TEST_SUITE_P(Recurrent, PublicNets, ::testing::ValuesIn(public_nets()),
                         [](const auto& info) { return info.param.name; });

// Before the gradient of a parameter had a name in the step net, an Alias or a Copy gave it the total's; and before a
// gradient under another name could be linked, a Copy gave it the usual one.
TEST(OlderPublicNets, NameGradientsByAliasOrCopy) {
  const Cell cell = {{"s = FC(h_prev, W, b) axis=2", "p = Sum(s, x)", "h = Tanh(p)"}, {kH}};
  for (const char* op : {"Alias", "Copy"}) {
    FullForm form = elman();
    form.unnamed_params = true;
    form.backward[1] = "W_split, b_split, h_prev_split = FCGradient(h_prev, W, s_grad) axis=2";
    form.backward.push_back(fmt::format("W_grad = {}(W_split)", op));
    form.backward.push_back(fmt::format("b_grad = {}(b_split)", op));
    form.backward.emplace_back("h_prev_grad = Copy(h_prev_split)");
    EXPECT_EQ(check(form, cell, 4, 2), "") << op;
    EXPECT_EQ(check(form, cell, 7, 50), "") << op;
  }
}

// The state is an output as a whole; an input that nobody reads; parameters without names in the step net.
TEST(PublicNet, WhoseStateIsAnOutput) {
  FullForm form = elman();
  form.inputs = {"X", "lengths", "W", "b", "h0"};
  form.outputs = {"h_all", "S", "h_last"};
  form.outputs_with_grads = {0};
  form.unnamed_params = true;
  for (const bool backward : {true, false}) {
    if (!backward) form.backward.clear(), form.backward_links.clear(), form.params.clear();
    const Feeds feeds = {{"X", normal<double>({4, 2, 3}, 1)},
                         {"lengths", Tensor::of<int32_t>({2}, {4, 4})},
                         {"W", normal<double>({3, 3}, 2)},
                         {"b", normal<double>({3}, 3)},
                         {"h0", normal<double>({1, 2, 3}, 4)}};
    const Cell cell = {{"s = FC(h_prev, W, b) axis=2", "p = Sum(s, x)", "h = Tanh(p)"}, {kH}, {}, {"h_all"}};
    const Feeds outside = form.backward.empty() ? Feeds() : outside_gradients(cell, feeds);
    const CellResults results = run_with_gradients(full_net(form, feeds), feeds, outside);
    EXPECT_EQ(compare_results(results, run_unrolled(cell, feeds, outside), 1e-10), "");
    EXPECT_EQ(compare(results.outputs.at("S").rows(0, 1), feeds[4].second, 0), "");
    EXPECT_EQ(compare(results.outputs.at("S").rows(1, 4), results.outputs.at("h_all"), 0), "");
  }
}

// No link leads to the gradient of the second state: nothing of it flows back, but for what arrives at its first row.
TEST(PublicNet, WithAStateThatHasNoGradient) {
  FullForm form = two_states({"h = Mul(x, h_prev)", "c = Mul(c_prev, h_prev)"},
                             {"x_grad = Mul(h_grad, h_prev)", "h_prev_grad = Mul(h_grad, x)"});
  form.backward_links.resize(3);
  const Lines stopped = {"h = Mul(x, h_prev)", "k = StopGradient(c_prev)", "l = StopGradient(h_prev)", "c = Mul(k, l)"};
  EXPECT_EQ(check(form, {stopped, {kH, kC}}, 4, 2), "");
  form.outputs_with_grads = {0, 1};
  EXPECT_EQ(check(form, {stopped, {kH, kC}}, 4, 2), "");
  EXPECT_EQ(check(form, {stopped, {kH, kC}}, 0, 2), "");
}

// A state of integers has none either, whoever asks for it.
TEST(PublicNet, WithAStateOfIntegers) {
  FullForm form = two_states({"h = Mul(x, h_prev)", "c = Copy(c_prev)"},
                             {"x_grad = Mul(h_grad, h_prev)", "h_prev_grad = Mul(h_grad, x)"});
  form.backward_links.resize(3);
  form.outputs_with_grads = {0, 1};
  for (const Shape& shape : {Shape{1}, Shape{2, 1}, Shape{1, 2, 1}}) {
    const Feeds feeds = {{"X", normal<double>({4, 2, 3}, 1)},
                         {"h0", normal<double>({2, 3}, 2)},
                         {"c0", integers<int32_t>(shape, 1, 9, 3)}};
    const Feeds outside = {{"h_all", normal<double>({4, 2, 3}, 4)}};
    EXPECT_EQ(check_differences(full_net(form, feeds), feeds, outside), "");
    NetDef net = full_net(form, feeds);
    const GradientResult result = add_gradient_operators(net, {.targets = {{"h_all", ""}}, .wanted = {}, .stop = {}});
    Workspace workspace;
    for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
    RunContext run;
    run_net_once(net, workspace, run);
    const Tensor& gradient = workspace.fetch(result.gradients.at("c0").dense);
    EXPECT_EQ(compare(to_double(gradient), Tensor::zeros(DType::float64, shape), 0), "");
  }
}

TEST(PublicNet, WithATimestepOfAnotherName) {
  FullForm form = one_state({"row = Gather(E, now)", "h = Sum(row, x)"}, {}, "", "");
  form.inputs.emplace_back("E");
  form.backward_links.clear();
  form.outputs_with_grads.clear();
  const Feeds feeds = {
      {"X", normal<double>({4, 2, 3}, 1)}, {"h0", normal<double>({2, 3}, 2)}, {"E", normal<double>({4, 2, 3}, 3)}};
  NetDef net = full_net(form, feeds);
  *net.mutable_op(0)->add_arg() = make_arg("timestep", std::string("now"));
  const Tensor sum = run_op_on(make_op("Add", {"X", "E"}, {"sum"}), {feeds[0], feeds[2]})[0];
  EXPECT_EQ(compare(run_with_gradients(net, feeds, {}).outputs.at("h_all"), sum, 0), "");
}

// A tool that lets gradients share blobs says so in ".rename" and rewrites the backward step net itself.
TEST(PublicNet, WithRenamedGradients) {
  const FullForm form = elman();
  const Feeds feeds = feeds_of(form, 4, 2);
  NetDef net = full_net(form, feeds);
  for (const char* given : {"h_all_given", "h_last_given"}) net.add_external_input(given);
  const GradientResult gradients = add_gradient_operators(
      net,
      {.targets = {{"h_all", "h_all_given"}, {"h_last", "h_last_given"}}, .wanted = {"X", "h0", "W", "b"}, .stop = {}});
  NetDef renamed = net;
  OperatorDef& op = *renamed.mutable_op(gradients.first_gradient_op);
  const std::map<std::string, std::string> names = {{"S_grad", "shared_0"}, {"X_grad", "shared_1"}, {"h_grad", "m0"},
                                                    {"s_grad", "m1"},       {"h_prev_grad", "m2"},  {"W_grad", "m3"}};
  auto rename = [&](std::string& name) {
    if (const auto it = names.find(name); it != names.end()) name = it->second;
  };
  for (std::string& name : *op.mutable_output())
    if (name == "X_grad") name = "shared_1";
  for (Argument& arg : *op.mutable_arg()) {
    if (arg.name() != "backward_step_net") continue;
    for (OperatorDef& inner : *arg.mutable_n()->mutable_op()) {
      for (std::string& name : *inner.mutable_input()) rename(name);
      for (std::string& name : *inner.mutable_output()) rename(name);
    }
  }
  for (const auto& [from, to] : names) *op.add_arg() = make_arg(from + ".rename", to);
  Workspace plain, shared;
  for (const auto& [workspace, def] : {std::pair{&plain, &net}, {&shared, &renamed}}) {
    for (const auto& [name, value] : feeds) workspace->tensor(name) = value.clone();
    workspace->tensor("h_all_given") = normal<double>({4, 2, 3}, 11);
    workspace->tensor("h_last_given") = normal<double>({1, 2, 3}, 12);
    RunContext run;
    Net bound(*def, *workspace);
    for (int i = 0; i < 2; ++i) bound.run(run);
  }
  EXPECT_EQ(compare(shared.fetch("shared_1"), plain.fetch("X_grad"), 0), "");
  for (const char* name : {"h0_grad", "W_grad", "b_grad"})
    EXPECT_EQ(compare(shared.fetch(name), plain.fetch(name), 0), "") << name;
  EXPECT_EQ(shared.fetch("shared_0").shape(), (Shape{5, 2, 3}));
  EXPECT_EQ(shared.find("S_grad"), nullptr);
}

// A state's gradient is a blob with all its rows only where the net names it.
TEST(PublicNet, ReadsAStatesGradient) {
  const FullForm form = elman();
  const Feeds feeds = feeds_of(form, 4, 2);
  Workspace unnamed, named;
  for (Workspace* workspace : {&unnamed, &named}) {
    NetDef net = full_net(form, feeds);
    for (const char* name : {"dh", "S_grad"}) net.add_external_input(name);
    add_gradient_operators(net, {.targets = {{"h_all", "dh"}}, .wanted = {"X", "h0", "W", "b"}, .stop = {}});
    if (workspace == &named) *net.add_op() = make_op("Copy", {"S_grad"}, {"seen"});
    for (const auto& [name, value] : feeds) workspace->tensor(name) = value.clone();
    workspace->tensor("S_grad");
    workspace->tensor("dh") = normal<double>({4, 2, 3}, 11);
    RunContext run;
    Net bound(net, *workspace);
    for (int i = 0; i < 2; ++i) bound.run(run);
  }
  EXPECT_TRUE(unnamed.find("S_grad")->empty());
  ASSERT_EQ(named.fetch("seen").shape(), (Shape{5, 2, 3}));
  EXPECT_EQ(compare(named.fetch("seen").rows(0, 1), unnamed.fetch("h0_grad").reshaped({1, 2, 3}), 0), "");
  for (const char* name : {"X_grad", "h0_grad", "W_grad", "b_grad"})
    EXPECT_EQ(compare(unnamed.fetch(name), named.fetch(name), 0), "") << name;
}

}  // namespace
}  // namespace stepnet::testing::public_nets_test
