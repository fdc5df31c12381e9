// Recurrent networks on the tape: operators on blobs run as nets of their own and equal the static net.
#include "core/net/expansions.h"
#include "recurrent/form/example_nets.h"
#include "tests/recurrent/tape_layers.h"

namespace stepnet::autograd::testing::tape_test {
namespace {

NetDef expanded(const std::string& text) {
  NetDef net = net_from(text);
  expand_net(net);
  return net;
}

class TapeLayer : public ::testing::TestWithParam<const char*> {};

TEST_P(TapeLayer, IsTheStaticNet) {
  const Layer l = layer(GetParam());
  Blobs given;
  Gradients gradients;
  for (const std::string& name : l.outputs) {
    given[name] = numbers(name == "Y" ? Shape{5, 2, 4} : Shape{1, 2, 4}, 8);
    gradients.emplace_back(Variable(given[name]));
  }
  const Blobs expected = run_static(expanded(l.text), l.feeds, given, l.inputs, l.outputs);
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const std::vector<Variable> outputs = run(GetParam(), inputs, l.args);
  ASSERT_EQ(outputs.size(), l.outputs.size());
  backward(outputs, gradients);
  for (size_t k = 0; k < outputs.size(); ++k)
    EXPECT_TRUE(same(outputs[k].value(), expected.at(l.outputs[k]))) << l.outputs[k];
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_TRUE(same(inputs[i].grad().value(), expected.at(l.inputs[i] + "_gradient"))) << l.inputs[i];
}

INSTANTIATE_TEST_SUITE_P(Types, TapeLayer, ::testing::Values("RNN", "GRU", "LSTM"));

TEST(TapeRecurrent, TheFullFormIsTheStaticNet) {
  const NetDef net = net_from(kFullFormExample);
  const Names names = {"X", "h0", "p"};
  const Blobs feeds = {{"X", numbers({3, 2, 2}, 1)}, {"h0", numbers({2, 2}, 2)}, {"p", numbers({1, 2, 2}, 3)}};
  const Tensor outside = numbers({3, 2, 2}, 4);
  const Blobs expected = run_static(net, feeds, {{"h_all", outside}}, names, {"h_all", "h_last"});
  const std::vector<Variable> inputs = leaves(feeds, names);
  const std::vector<Variable> outputs = run(net.op(0), inputs);
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_FALSE(outputs[2].defined());  // the scratch
  EXPECT_TRUE(same(outputs[1].value(), expected.at("h_last")));
  backward({outputs[0]}, {Variable(outside)});
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_TRUE(same(inputs[i].grad().value(), expected.at(names[i] + "_gradient"))) << names[i];
}

TEST(TapeRecurrent, TheShortFormIsTheStaticNet) {
  const Names names = {"X", "lengths", "W", "b"};
  const Blobs feeds = {{"X", numbers({3, 2, 2}, 1)},
                       {"lengths", Tensor::of<int32_t>({2}, {3, 1})},
                       {"W", numbers({2, 2}, 2)},
                       {"b", numbers({2}, 3)}};
  const Tensor outside = numbers({3, 2, 2}, 4);
  const Blobs expected =
      run_static(expanded(kShortFormExample), feeds, {{"sums", outside}}, {"X", "W", "b"}, {"h_all", "sums"});
  const NetFunction f(net_from(kShortFormExample), names, {"h_all", "sums"});
  const std::vector<Variable> inputs = leaves(feeds, names);
  const std::vector<Variable> outputs = f(inputs);
  EXPECT_TRUE(same(outputs[0].value(), expected.at("h_all")));
  backward({outputs[1]}, {Variable(outside)});
  for (const size_t i : {0, 2, 3})
    EXPECT_TRUE(same(inputs[i].grad().value(), expected.at(names[i] + "_gradient"))) << names[i];
}

// A loss over an LSTM, a product with `v` and a sum of squares.
const char* const kLossNet = R"(op { type: 'FC' input: 'Y' input: 'v' input: 'c' output: 'o' arg { name: 'axis' i: 2 } }
  op { type: 'Mul' input: 'o' input: 'o' output: 'q' } op { type: 'SumElements' input: 'q' output: 'loss' })";

void step(Tensor& value, const Tensor& gradient) {
  for (int64_t i = 0; i < value.size(); ++i) value.data<double>()[i] -= 0.05 * gradient.data<double>()[i];
}

TEST(TapeRecurrent, AnLstmTrainsAsTheStaticNetDoes) {
  const Layer l = layer("LSTM");
  const NetDef net = expanded(l.text + kLossNet);
  Blobs feeds = l.feeds;
  feeds["v"] = numbers({2, 4}, 9);
  feeds["c"] = numbers({2}, 10);
  Names trained = l.inputs;
  trained.erase(trained.begin());
  trained.insert(trained.end(), {"v", "c"});
  std::map<std::string, Variable> eager;
  for (const auto& [name, value] : feeds) eager[name] = Variable(value.clone(), name != "X");
  double first = 0, last = 0;
  for (int s = 0; s < 5; ++s) {
    const Blobs result = run_static(net, feeds, {{"loss", Tensor::of<double>({1}, {1})}}, trained, {"loss"});
    std::vector<Variable> inputs;
    for (const std::string& name : l.inputs) inputs.push_back(eager[name]);
    const Variable o = run("FC", {run("LSTM", inputs, l.args)[0], eager["v"], eager["c"]}, {make_arg("axis", 2)})[0];
    const Variable loss = sum_of(apply("Mul", {o, o}));
    backward(loss);
    EXPECT_TRUE(same(loss.value(), result.at("loss")));
    last = loss.value().item<double>();
    if (s == 0) first = last;
    for (const std::string& name : trained) {
      step(feeds[name], result.at(name + "_gradient"));
      step(eager[name].unchecked_value(), eager[name].grad().value());
      eager[name].clear_grad();
      EXPECT_TRUE(same(eager[name].value(), feeds[name])) << name << " after step " << s;
    }
  }
  EXPECT_LT(last, first);
}

TEST(TapeRecurrent, MayRunBackwardAgainIfTheGraphIsKept) {
  const Layer l = layer("LSTM");
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const Variable loss = sum_of(run("LSTM", inputs, l.args)[0]);
  const Gradients first = grad({loss}, inputs, {.keep_graph = true});
  std::vector<Numbers> values;
  for (const VariableGradient& g : first) values.push_back(values_of(g.dense));
  const Gradients second = grad({loss}, inputs, {.keep_graph = true});
  const Gradients third = grad({loss}, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(values_of(first[i].dense), values[i]) << l.inputs[i];
    EXPECT_EQ(values_of(second[i].dense), values[i]) << l.inputs[i];
    EXPECT_EQ(values_of(third[i].dense), values[i]) << l.inputs[i];
  }
  expect_error([&] { grad({loss}, inputs); }, {"a backward pass has run here before"});
}

TEST(TapeRecurrent, GradientsOfSomeInputsAreThoseOfAll) {
  const Layer l = layer("GRU");
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const Variable loss = sum_of(run("GRU", inputs, l.args)[0]);
  const Gradients all = grad({loss}, inputs, {.keep_graph = true});
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_EQ(values_of(grad({loss}, {inputs[i]}, {.keep_graph = true})[0].dense), values_of(all[i].dense));
}

TEST(TapeRecurrent, EachCallKeepsItsOwn) {
  const Layer l = layer("LSTM");
  const std::vector<Variable> a = leaves(l.feeds, l.inputs), b = leaves(l.feeds, l.inputs),
                              c = leaves(l.feeds, l.inputs);
  for (double& v : Variable(b[0]).unchecked_value().span<double>()) v += 0.25;
  const Variable ya = run("LSTM", a, l.args)[0], yb = run("LSTM", b, l.args)[0];
  backward({sum_of(ya), sum_of(yb)});
  backward(sum_of(run("LSTM", c, l.args)[0]));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(grad_of(a[i]), grad_of(c[i])) << l.inputs[i];
  EXPECT_NE(grad_of(b[0]), grad_of(a[0]));
}

TEST(TapeRecurrent, BytesReturnToTheStart) {
  const Layer l = layer("LSTM");
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const int64_t before = live_bytes();
  {
    const Variable loss = sum_of(run("LSTM", inputs, l.args)[0]);
    const int64_t held = live_bytes();
    grad({loss}, inputs);
    EXPECT_LT(live_bytes(), held);  // the workspace is let go of with the pass
    const Variable never = run("LSTM", inputs, l.args)[0];
    const NoGrad no_grad;
    run("LSTM", inputs, l.args);
  }
  EXPECT_EQ(live_bytes(), before);
}

TEST(TapeRecurrent, WeightsThatWereWrittenSinceAreStale) {
  const Layer l = layer("LSTM");
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const std::vector<Variable> outputs = run("LSTM", inputs, l.args);
  {
    const NoGrad no_grad;
    apply_in_place("Negative", {inputs[4]});
  }
  expect_error([&] { backward(sum_of(outputs[0])); }, {"was saved at version", "tape_test.cc:"});
}

TEST(TapeRecurrent, HasFirstDerivativesOnly) {
  const Layer l = layer("RNN");
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  const Variable loss = sum_of(run("RNN", inputs, l.args)[0]);
  const Gradients g = grad({loss}, {inputs[0]}, {.create_graph = true});
  expect_error([&] { backward(sum_of(g[0].dense)); }, {"cannot be differentiated again", "tape_test.cc:"});
}

TEST(TapeRecurrent, ErrorsNameTheOperatorAndThePlace) {
  const Layer l = layer("LSTM");
  std::vector<Variable> inputs = leaves(l.feeds, l.inputs);
  inputs[3] = Variable(numbers({16, 7}, 1), true);
  expect_error([&] { run("LSTM", inputs, l.args); }, {"w_ih must be [16, 3]", "RecurrentNetwork", "tape_test.cc:"});
  expect_error([&] { run("LSTM", {inputs[0]}, l.args); }, {"LSTM", "tape_test.cc:"});
  expect_error([&] { run("LSTM", inputs, l.args, {.in_place = true}); }, {"cannot overwrite a variable"});
}

}  // namespace
}  // namespace stepnet::autograd::testing::tape_test
