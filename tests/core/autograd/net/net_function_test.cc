// Nets as nodes: values and gradients against the static net, what is saved, and when it is let go of.
#include "stepnet/net_function.h"

#include <gtest/gtest.h>

#include "core/autograd/net/net_node.h"
#include "tests/core/autograd/net_testing.h"

namespace stepnet::autograd::testing::net_function_test {
namespace {

// Two layers, the second of which is written in place, and a sum of squares.
NetDef layers() {
  return net_from(op_text("FC", {"x", "w", "b"}, {"h"}) + op_text("Tanh", {"h"}, {"t"}) +
                  op_text("FC", {"t", "v", "c"}, {"s"}) + op_text("Sigmoid", {"s"}, {"s"}) +
                  op_text("Mul", {"s", "s"}, {"q"}));
}
const std::vector<std::string> kLayerInputs = {"x", "w", "b", "v", "c"};

Blobs layer_feeds() {
  return {{"x", numbers({3, 4}, 1)},
          {"w", numbers({5, 4}, 2)},
          {"b", numbers({5}, 3)},
          {"v", numbers({2, 5}, 4)},
          {"c", numbers({2}, 5)}};
}

std::vector<Variable> variables_of(const Blobs& feeds, const std::vector<std::string>& names,
                                   const std::vector<std::string>& constant = {}) {
  std::vector<Variable> variables;
  for (const std::string& name : names)
    variables.emplace_back(feeds.at(name).clone(), std::ranges::find(constant, name) == constant.end());
  return variables;
}

TEST(NetFunction, ValuesAndGradientsAreThoseOfTheStaticNet) {
  const Blobs feeds = layer_feeds();
  const NetFunction f(layers(), kLayerInputs, {"q", "t"});
  const Tensor dq = numbers({3, 2}, 6), dt = numbers({3, 5}, 7);
  for (const bool both : {false, true}) {
    const std::vector<Variable> inputs = variables_of(feeds, kLayerInputs);
    const std::vector<Variable> outputs = f(inputs);
    const Blobs expected =
        run_static(layers(), feeds, both ? Blobs{{"q", dq}, {"t", dt}} : Blobs{{"q", dq}}, kLayerInputs, {"q", "t"});
    if (both) {
      backward({outputs[0], outputs[1]}, {Variable(dq), Variable(dt)});
    } else {
      backward({outputs[0]}, {Variable(dq)});
    }
    EXPECT_TRUE(same(outputs[0].value(), expected.at("q")));
    EXPECT_TRUE(same(outputs[1].value(), expected.at("t")));
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_TRUE(same(inputs[i].grad().value(), expected.at(kLayerInputs[i] + "_gradient"))) << kLayerInputs[i];
  }
}

TEST(NetFunction, StandsBetweenEagerOperators) {
  const NetFunction square(net_from(op_text("Mul", {"a", "a"}, {"b"})), {"a"}, {"b"});
  const Variable x = var({2, 3});
  const Variable y = apply("Mul", {x, x});               // x^2
  const Variable z = apply("Mul", {square({y})[0], x});  // x^5
  backward(sum_of(z));
  EXPECT_EQ(values_of(z), (Numbers{32, 243}));
  EXPECT_EQ(grad_of(x), (Numbers{80, 405}));
}

TEST(NetFunction, MayBeCalledTwiceBeforeBackward) {
  const NetFunction square(net_from(op_text("Mul", {"a", "a"}, {"b"})), {"a"}, {"b"});
  const Variable x = var({2, 3}), y = var({5, 7});
  const Variable a = square({x})[0], b = square({y})[0];
  backward({sum_of(a), sum_of(b)}, {});
  EXPECT_EQ(grad_of(x), (Numbers{4, 6}));
  EXPECT_EQ(grad_of(y), (Numbers{10, 14}));
  EXPECT_NE(a.grad_fn(), b.grad_fn());
}

TEST(NetFunction, OutputsOfConstantsHaveNoHistory) {
  const NetFunction f(net_from(op_text("Tanh", {"a"}, {"p"}) + op_text("Tanh", {"b"}, {"q"})), {"a", "b"}, {"p", "q"});
  const std::vector<Variable> outputs = f({var({1}), constant({2})});
  EXPECT_TRUE(outputs[0].requires_grad());
  EXPECT_FALSE(outputs[1].requires_grad());
  EXPECT_FALSE(f({constant({1}), constant({2})})[0].requires_grad());
  const NoGrad no_grad;
  EXPECT_FALSE(f({var({1}), constant({2})})[0].requires_grad());
}

TEST(NetFunction, AnInputMayBeAnOutput) {
  const NetFunction f(net_from(op_text("Mul", {"a", "b"}, {"c"})), {"a", "b"}, {"a", "c"});
  const Variable x = var({2}), w = var({3});
  const std::vector<Variable> outputs = f({x, w});
  EXPECT_TRUE(outputs[0].is_view());
  backward({outputs[0], outputs[1]});
  EXPECT_EQ(grad_of(x), (Numbers{4}));
  EXPECT_EQ(grad_of(w), (Numbers{2}));
}

TEST(NetFunction, AnInputThatIsOverwrittenIsCopied) {
  const NetFunction f(net_from(op_text("Tanh", {"a"}, {"a"}) + op_text("Mul", {"a", "w"}, {"y"})), {"a", "w"}, {"y"});
  const Variable x = var({0.5}), w = var({3});
  const Variable y = f({x, w})[0];
  EXPECT_EQ(values_of(x), (Numbers{0.5}));
  backward(y);
  const double t = std::tanh(0.5);
  EXPECT_DOUBLE_EQ(grad_of(x)[0], 3 * (1 - t * t));
  EXPECT_DOUBLE_EQ(grad_of(w)[0], t);
}

TEST(NetFunction, SparseGradientsStaySparse) {
  const NetFunction f(net_from(op_text("Gather", {"table", "rows"}, {"y"})), {"table", "rows"}, {"y"});
  const Variable table = var({3, 2}, {1, 2, 3, 4, 5, 6});
  const Variable rows(Tensor::of<int32_t>({2}, {2, 0}));
  const Gradients g = grad({f({table, rows})[0]}, {table}, {.grad_outputs = {var({2, 2}, {1, 2, 3, 4}, false)}});
  ASSERT_TRUE(g[0].is_sparse());
  EXPECT_EQ(g[0].indices.value().span<int32_t>()[0], 2);
  EXPECT_EQ(values_of(g[0].values), (Numbers{1, 2, 3, 4}));
}

// y = (x w) v, of vectors of 1000 elements.
class GuardedNet : public ::testing::TestWithParam<int> {};

TEST_P(GuardedNet, SavesWhatItsGradientsRead) {
  const Mask needs = {(GetParam() & 1) != 0, (GetParam() & 2) != 0, (GetParam() & 4) != 0};
  const NetFunction f(net_from(op_text("Mul", {"x", "w"}, {"h"}) + op_text("Mul", {"h", "v"}, {"y"})), {"x", "w", "v"},
                      {"y"});
  std::vector<Variable> inputs;
  for (const bool need : needs) inputs.emplace_back(numbers({1000}, 1), need);
  const int64_t before = live_bytes();
  {
    const Variable y = f(inputs)[0];
    // The result, and x w where v's gradient reads it.
    EXPECT_EQ(live_bytes() - before, 8000 * (needs[2] ? 2 : 1));
    if (GetParam() == 0) return;
    auto& node = static_cast<NetNode&>(*y.grad_fn());
    EXPECT_EQ(node.saved_input(0).holds(), needs[1]);
    EXPECT_EQ(node.saved_input(1).holds(), needs[0]);
    EXPECT_EQ(node.saved_input(2).holds(), needs[0] || needs[1]);
    backward({y}, {Variable(numbers({1000}, 2))});
    EXPECT_TRUE(node.outputs().size() == (needs[2] ? 2U : 1U));
  }
  int64_t gradients = 0;
  for (const Variable& v : inputs) gradients += v.grad().defined() ? 8000 : 0;
  EXPECT_EQ(live_bytes() - before, gradients);
}

INSTANTIATE_TEST_SUITE_P(Needs, GuardedNet, ::testing::Range(0, 8));

TEST(NetFunction, StaleInputsAreErrorsWhereTheyAreRead) {
  const NetFunction f(net_from(op_text("Mul", {"x", "w"}, {"y"})), {"x", "w"}, {"y"});
  const Variable x = var({2}), w = var({3});
  const Variable y = f({x, w})[0];
  {
    const NoGrad no_grad;
    apply_in_place("Negative", {x});
  }
  EXPECT_EQ(values_of(grad({y}, {x}, {.keep_graph = true})[0].dense), (Numbers{3}));  // reads w alone
  expect_error([&] { backward(y); },
               {"the gradient of net \"tested\"", "x, double[1], was saved at version", "net_function_test.cc:"});
}

TEST(NetFunction, ASecondPassSaysThatValuesAreGone) {
  const NetFunction f(net_from(op_text("Mul", {"x", "w"}, {"y"})), {"x", "w"}, {"y"});
  const Variable x = var({2}), w = var({3});
  const Variable y = f({x, w})[0];
  backward(y, {.keep_graph = true});
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{6}));
  expect_error([&] { backward(y); }, {"a backward pass has run here before"});
}

TEST(NetFunction, BytesReturnToTheStart) {
  const int64_t before = live_bytes();
  {
    const NetFunction f(layers(), kLayerInputs, {"q"});
    const std::vector<Variable> inputs = variables_of(layer_feeds(), kLayerInputs);
    const Variable never_run = f(inputs)[0];
    backward(sum_of(f(inputs)[0]));
    EXPECT_THROW(f({inputs[0], inputs[0], inputs[0], inputs[0], inputs[0]}), Error);
  }
  EXPECT_EQ(live_bytes(), before);
}

TEST(NetFunction, SavedValuesGoThroughHooks) {
  const NetFunction f(layers(), kLayerInputs, {"q"});
  const std::vector<Variable> inputs = variables_of(layer_feeds(), kLayerInputs, {"x"});
  const int64_t packed = counted(TapeEvent::value_packed), unpacked = counted(TapeEvent::value_unpacked);
  Variable q;
  {
    const SavedValueHooksScope scope({[](const Tensor& t) { return std::any(t.clone()); },
                                      [](const std::any& a) { return std::any_cast<Tensor>(a); }});
    q = f(inputs)[0];
  }
  EXPECT_EQ(counted(TapeEvent::value_packed) - packed, 4);  // x, v, t and s
  backward(sum_of(q));
  EXPECT_EQ(counted(TapeEvent::value_unpacked) - unpacked, 4);
}

TEST(NetFunction, RandomOperatorsDrawAnewAndAgain) {
  const std::string ratio = "arg { name: \"ratio\" f: 0.5 }";
  const NetFunction f(net_from(op_text("Dropout", {"x"}, {"y", "mask"}, ratio)), {"x"}, {"y"});
  const Variable x(numbers({64}, 1), true);
  const RandomState start = random_state();
  const Variable a = f({x})[0], b = f({x})[0];
  EXPECT_NE(values_of(a), values_of(b));
  set_random_state(start);
  const Variable c = f({x})[0];
  EXPECT_EQ(values_of(a), values_of(c));
  const Gradients of_a = grad({sum_of(a)}, {x}), of_c = grad({sum_of(c)}, {x});
  EXPECT_EQ(values_of(of_a[0].dense), values_of(of_c[0].dense));
}

TEST(NetFunctionErrors, OfANet) {
  const NetDef net = net_from(op_text("Mul", {"x", "w"}, {"y"}));
  expect_error([&] { NetFunction(net, {"x"}, {"y"}); }, {"the input \"w\" is written by no earlier operator", "Mul"});
  expect_error([&] { NetFunction(net, {"x", "w"}, {"z"}); }, {"\"z\" of net \"tested\" is written by no operator"});
  expect_error([&] { NetFunction(net, {"x", "x"}, {"y"}); }, {"\"x\" is twice among the inputs of net \"tested\""});
  const NetFunction f(net, {"x", "w"}, {"y"});
  expect_error([&] { f({var({1})}); }, {"net \"tested\" has 2 inputs, and gets 1", "net_function_test.cc:"});
  expect_error([&] { f({var({1}), Variable()}); }, {"the input \"w\" is undefined"});
  expect_error([&] { f({var({1, 2, 3}), var({1, 2})}); }, {"operator 0", "\"tested\"", "y = Mul(x, w)", "at"});
}

TEST(NetFunctionErrors, OfADerivative) {
  const NetFunction f(net_from(op_text("MomentumSGD", {"g", "m", "lr"}, {"g2", "m2"})), {"g", "m", "lr"}, {"g2"});
  expect_error([&] { f({var({1}), var({1}), constant({1})}); }, {"MomentumSGD", "net_function_test.cc:"});
}

}  // namespace
}  // namespace stepnet::autograd::testing::net_function_test
