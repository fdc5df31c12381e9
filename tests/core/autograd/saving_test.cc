// What operators save for their derivatives, what they do not, and how what is saved is read and let go of.
#include <gtest/gtest.h>

#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::saving_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

class TapeSaving : public TapeTest {};

constexpr int64_t kBlock = 2 * 3 * 10 * 10 * 8;  // bytes of x below, a multiple of the allocator's 64

// The bytes that `sum((x + 2) * m)` holds beyond those of `sum(x)`.
int64_t held_by_dropout(bool mask_is_trained) {
  const Variable x(Tensor::zeros(DType::float64, {2, 3, 10, 10}), true);
  const Variable m(Tensor::zeros(DType::float64, {1, 3, 1, 1}), mask_is_trained);
  const Variable two = constant({2});
  Variable z = sum_of(x);
  const int64_t before = live_bytes();
  z = sum_of(broadcast("Mul", broadcast("Add", x, two), m));
  return live_bytes() - before;
}

// A value that only the gradient of a constant would read is not kept, to the byte.
TEST_F(TapeSaving, FreeUnneededTensor) {
  EXPECT_EQ(held_by_dropout(false), 0);
  EXPECT_EQ(held_by_dropout(true), kBlock);
}

// The sum of x * k over three values k, where x is one buffer that is written anew for each; the gradient of mu.
Numbers reused_buffer(bool multiplier_is_trained) {
  const Variable mu = var({1});
  Variable x = constant({0});
  Variable loss;
  for (int i = 0; i < 3; ++i) {
    x.detach_();
    x.copy_(apply("Add", {mu, constant({static_cast<double>(i)})}));
    const Variable term = sum_of(apply("Mul", {x, var({static_cast<double>(i)}, multiplier_is_trained)}));
    loss = loss.defined() ? apply("Add", {loss, term}) : term;
  }
  backward(loss);
  return grad_of(mu);
}

// A buffer may be overwritten if no formula that will run reads it.
TEST_F(TapeSaving, NoUnnecessarySave) { EXPECT_EQ(reused_buffer(false), (Numbers{3})); }

// The same with multipliers whose gradients read the buffer.
TEST_F(TapeSaving, NecessarySave) {
  const std::string text = error_text([] { reused_buffer(true); });
  expect_contains(text, "MulGradient: A, double[1], was saved at version 2 and is at version 3 now");
  expect_contains(text, "Mul ran forward at ");
  expect_contains(text, "saving_test.cc:");
}

// Taking rows saves the indices alone.
TEST_F(TapeSaving, IndexBackwardDoesNotSaveTensor) {
  const Variable x = var({3, 1}, {1, 2, 3});
  const Variable table = apply("Negative", {x});
  const Variable indices(Tensor::of<int32_t>({2}, {2, 0}));
  const Variable rows = apply("Gather", {table, indices});
  EXPECT_FALSE(keeps_input(rows, 0));
  EXPECT_TRUE(keeps_input(rows, 1));
  apply_in_place("Mul", {table, table});
  backward(sum_of(rows));
  EXPECT_EQ(grad_of(x), (Numbers{-1, 0, -1}));
}

// Overwritten indices are noticed.
TEST_F(TapeSaving, IndexBackwardSavesIndices) {
  const Variable x = var({3, 1}, {1, 2, 3});
  Variable indices(Tensor::of<int32_t>({2}, {2, 0}));
  const Variable rows = sum_of(apply("Gather", {x, indices}));
  indices.copy_(Variable(Tensor::of<int32_t>({2}, {1, 1})));
  expect_contains(error_text([&] { backward(rows); }), "INDICES, int32[2], was saved at version 0 and is at version 1");
}

// A value that is absent reads as none.
TEST_F(TapeSaving, SaveNoneForBackward) {
  const Variable x = var({2, 3});
  const Variable y = apply("Negative", {x});
  EXPECT_FALSE(SavedValue().holds());
  EXPECT_FALSE(SavedValue().unpack({}, *y.grad_fn(), "nothing").defined());
  EXPECT_FALSE(node_of(y).read_input(0).defined());
}

// What is unpacked is equal, in the same bytes, and flows to the same place; the input is untouched.
TEST_F(TapeSaving, NoUnnecessaryUnwrapping) {
  const Variable x = var({2, 3});
  const Variable y = apply("Mul", {x, x});
  const Variable e = apply("Exp", {y});
  const Variable leaf = node_of(y).read_input(0);
  EXPECT_TRUE(leaf.value().shares_storage(x.value()));
  EXPECT_EQ(leaf.gradient_edge(), x.gradient_edge());
  const Variable output = node_of(e).read_output(0);
  EXPECT_TRUE(output.value().shares_storage(e.value()));
  EXPECT_EQ(output.gradient_edge(), e.gradient_edge());
  backward(sum_of(e));
  expect_contains(error_text([&] { node_of(y).read_input(0); }), "let go of the values that were saved");
  expect_contains(error_text([&] { node_of(e).read_output(0); }), "let go of the values that were saved");
  EXPECT_EQ(values_of(x), (Numbers{2, 3}));
  EXPECT_TRUE(x.is_leaf());
}

// The value read back has the version that the output has now.
TEST_F(TapeSaving, SavedVariableVersionCounter) {
  const Variable x = var({2, 3});
  const Variable y = apply("Exp", {x});
  const Variable saved = node_of(y).read_output(0);
  EXPECT_EQ(saved.version(), y.version());
  Variable(y).bump_version();
  EXPECT_EQ(saved.version(), y.version());
}

// A saved output knows which output it is.
TEST_F(TapeSaving, SaveOutputNr) {
  const Variable x = var({2, 2}, {1, 2, 3, 5});
  const std::vector<Variable> y = run("LayerNorm", {x}, {}, {.outputs = 3});
  ASSERT_TRUE(keeps_output(y[0], 2));
  EXPECT_EQ(node_of(y[0]).read_output(2).output_index(), 2);
  EXPECT_EQ(node_of(y[0]).read_output(2).grad_fn(), y[0].grad_fn());
}

// Fields of a node can be looked at: values until they are let go of, what was not saved as nothing, arguments always.
TEST_F(TapeSaving, GradFnAttrBindings) {
  const Variable x = var({2, 3}), k = constant({5, 7});
  const Variable y = apply("Mul", {x, k});
  EXPECT_FALSE(node_of(y).read_input(0).defined());
  EXPECT_EQ(values_of(node_of(y).read_input(1)), (Numbers{5, 7}));
  EXPECT_FALSE(node_of(y).read_output(0).defined());
  const Variable s = run("Scale", {y}, {make_arg("scale", 3.0F)})[0];
  backward(sum_of(s));
  expect_contains(error_text([&] { node_of(y).read_input(1); }), "MulGradient: a backward pass has run here before");
  EXPECT_EQ(node_of(s).op().bound().def.arg(0).f(), 3.0F);
}

// Hooks on one saved value: one pair, while it is there.
TEST_F(TapeSaving, CustomFunctionSavedTensors) {
  const Variable x = var({2, 3}), k = constant({5, 7});
  const Variable y = apply("Mul", {x, k});
  SavedValue& saved = *node_of(y).saved_input(1);
  const SavedValueHooks copy = {[](const Tensor& t) { return std::any(t.clone()); },
                                [](const std::any& a) { return std::any_cast<Tensor>(a); }};
  saved.register_hooks(copy);
  expect_contains(error_text([&] { saved.register_hooks(copy); }), "has hooks already");
  SavedValue nothing;
  expect_contains(error_text([&] { nothing.register_hooks(copy); }), "there is no saved value here");
  backward(sum_of(y));
  expect_contains(error_text([&] { saved.register_hooks(copy); }), "has been released");
  EXPECT_EQ(grad_of(x), (Numbers{5, 7}));
}

// What a hook has made of a value can be got at.
TEST_F(TapeSaving, GetDataAndHooksFromRawSavedVariable) {
  const Variable x = var({2, 3}), k = constant({5, 7});
  const Variable plain = apply("Mul", {x, k});
  EXPECT_EQ(node_of(plain).saved_input(1)->packed(), nullptr);
  const SavedValueHooksScope scope({[](const Tensor&) { return std::any(std::string("a file's name")); },
                                    [](const std::any&) {
                                      return Tensor::of<double>({2}, {1, 1});
                                    }});
  const Variable y = apply("Mul", {x, k});
  const std::any* packed = node_of(y).saved_input(1)->packed();
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(std::any_cast<std::string>(*packed), "a file's name");
}

// A quotient that is larger than its dividend is computed again from it, to the same bits; whichever gradients are
// asked for, and where gradients are differentiated.
TEST_F(TapeSaving, AQuotientLargerThanItsDividendIsComputedAgain) {
  const std::initializer_list<double> divisors = {0.7, -3, 0.3, 1.9, 7, -0.1};
  const Variable a = var({0.1, 0.3}), b = var({3, 2}, divisors);
  const Variable repeated = var({3, 2}, {0.1, 0.3, 0.1, 0.3, 0.1, 0.3}), other = var({3, 2}, divisors);
  const Variable weights = var({3, 2}, {1, 2.5, -3, 0.9, 5, 1.1}, false);
  const auto loss_of = [&](const Variable& quotient) {
    return sum_of(apply("Mul", {apply("Sqr", {quotient}), weights}));
  };
  const Variable again = broadcast("Div", a, b), kept = apply("Div", {repeated, other});
  EXPECT_TRUE(keeps_input(again, 0) && keeps_input(again, 1) && !keeps_output(again, 0));
  EXPECT_TRUE(!keeps_input(kept, 0) && keeps_input(kept, 1) && keeps_output(kept, 0));
  const GradOptions keep = {.create_graph = true};
  const Variable alone = grad({loss_of(again)}, {b}, keep)[0].dense;
  const Variable expected = grad({loss_of(kept)}, {other}, keep)[0].dense;
  EXPECT_EQ(values_of(alone), values_of(expected));
  const Gradients both = grad({loss_of(again)}, {a, b}, keep);
  EXPECT_EQ(values_of(both[1].dense), values_of(expected));
  const std::vector<double> second = values_of(grad({sum_of(apply("Sqr", {alone}))}, {b})[0].dense);
  const std::vector<double> should = values_of(grad({sum_of(apply("Sqr", {expected}))}, {other})[0].dense);
  for (size_t i = 0; i < should.size(); ++i) EXPECT_NEAR(second[i], should[i], 1e-12 * std::abs(should[i])) << i;
}

// So the dividend is not to be overwritten then.
TEST_F(TapeSaving, TheDividendOfALargerQuotientMustStay) {
  Variable a = var({0.1, 0.3});
  const Variable q = broadcast("Div", a, var({3, 2}, {0.7, -3, 0.3, 1.9, 7, -0.1}));
  const Variable loss = sum_of(q);
  const NoGrad no_grad;
  a.copy_(constant({1, 1}));
  expect_contains(error_text([&] { backward(loss); }), "DivGradient: A, double[2], was saved at version 0");
}

// A second pass where values were saved says what to do.
TEST_F(TapeSaving, BackwardTwiceWithSavedValues) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {x, x}));
  backward(y);
  const std::string text = error_text([&] { backward(y); });
  expect_contains(text, "MulGradient: a backward pass has run here before and let go of the values that were saved");
  expect_contains(text, "keep the graph in the pass before (keep_graph)");
  EXPECT_EQ(grad_of(x), (Numbers{4, 6}));
}

// It says so also if this time nothing would be read.
TEST_F(TapeSaving, BackwardTwiceThroughWhatWouldReadNothing) {
  const Variable x = var({2, 3}), k = constant({5, 7});
  const Variable y = sum_of(apply("AddCMul", {x, x, k}));
  backward(y);
  expect_contains(error_text([&] { backward(y); }), "AddCMulGradient: a backward pass has run here before");
}

// Where nothing was saved a second pass may run.
TEST_F(TapeSaving, BackwardTwiceWithoutSavedValues) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Add", {x, constant({1, 1})}));
  backward(y);
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{2, 2}));
}

// A kept graph serves until a pass that does not keep it.
TEST_F(TapeSaving, BackwardTwiceRetainedGraphWithSavedValues) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {x, x}));
  backward(y, {.keep_graph = true});
  backward(y, {.keep_graph = true});
  backward(y);
  EXPECT_EQ(grad_of(x), (Numbers{12, 18}));
}

// A node that somebody has kept has nothing to show once its pass is over.
TEST_F(TapeSaving, NaughtyAutogradFunctionStashingCtx) {
  const Variable x = var({2, 3});
  std::shared_ptr<Node> stashed;
  {
    const Variable y = apply("Exp", {x});
    stashed = y.grad_fn();
    backward(sum_of(y));
  }
  expect_contains(error_text([&] { dynamic_cast<OpNode&>(*stashed).read_output(0); }), "let go of the values");
}

// Values outlive a pass that recorded.
TEST_F(TapeSaving, CustomAutogradNoEarlyFree) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Exp", {apply("Mul", {x, x})}));
  const Numbers recorded = values_of(grad({y}, {x}, {.create_graph = true})[0].dense);
  EXPECT_EQ(values_of(grad({y}, {x})[0].dense), recorded);
}

// Gradients of gradients are the same each time.
TEST_F(TapeSaving, CustomAutogradRepeatedGradGrad) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {apply("Mul", {x, x}), x}));
  const auto second = [&] {
    const Variable first = grad({y}, {x}, {.create_graph = true})[0].dense;
    return values_of(grad({sum_of(first)}, {x}, {.keep_graph = true})[0].dense);
  };
  EXPECT_EQ(second(), (Numbers{12, 18}));
  EXPECT_EQ(second(), (Numbers{12, 18}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::saving_test
