// Typed calls: what the generated functions of stepnet/ops.h give to operators, and back.
#include <gtest/gtest.h>

#include "stepnet/ops.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"
#include "tests/core/heap_counter.h"

namespace stepnet::autograd::testing::typed_call_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

TEST(TypedCalls, AreRecordedAsRunIs) {
  const Variable a = var({1, 2, 3}), b = var({4, 5, 6});
  const Variable c = ops::mul(a, b);
  EXPECT_EQ(values_of(c), (Numbers{4, 10, 18}));
  EXPECT_EQ(c.grad_fn()->name(), "MulGradient");
  backward(ops::sum_elements(c));
  EXPECT_EQ(grad_of(a), (Numbers{4, 5, 6}));
  EXPECT_EQ(grad_of(b), (Numbers{1, 2, 3}));
}

TEST(TypedCalls, PassTheArgumentsThatAreGiven) {
  const Variable x = var({2, 2}, {1, 1, 1, 1});
  EXPECT_EQ(values_of(ops::scale(x)), (Numbers{1, 1, 1, 1}));
  EXPECT_EQ(values_of(ops::scale(x, {.scale = 3})), (Numbers{3, 3, 3, 3}));
  EXPECT_EQ(values_of(ops::softmax(x, {.axis = 0})), (Numbers{.25, .25, .25, .25}));
  EXPECT_EQ(values_of(ops::softmax(x, {.axis = 1})), (Numbers{.5, .5, .5, .5}));
  EXPECT_EQ(ops::transpose(var({2, 3}, {1, 2, 3, 4, 5, 6}), {.axes = {1, 0}}).shape(), (Shape{3, 2}));
  EXPECT_EQ(ops::constant_fill({}, {}, {.shape = {2}, .value = 1.5f}).value().span<float>()[1], 1.5f);
  const Variable seven = ops::given_tensor_int_fill({}, {.shape = {1}, .values = std::vector<int64_t>{7}});
  EXPECT_EQ(seven.value().item<int>(), 7);
}

// An empty list is given, where {} leaves a list out.
TEST(TypedCalls, TellAnEmptyListFromNone) {
  const Variable one = var({1});
  EXPECT_EQ(Variable(ops::reshape(one, {}, {.shape = std::vector<int64_t>{}})).shape(), Shape{});
  expect_contains(error_text([&] { ops::reshape(one, {}, {.shape = {}}); }), "shape");
}

TEST(TypedCalls, GiveSeveralOutputsByName) {
  const Variable logits = var({1, 2}, {0, 0});
  const Variable label(Tensor::of<int32_t>({1}, {1}));
  const auto [softmax, loss] = ops::softmax_with_loss(logits, label);
  EXPECT_EQ(values_of(softmax), (Numbers{.5, .5}));
  EXPECT_NEAR(values_of(loss)[0], std::log(2.0), 1e-12);
}

// Outputs that may be absent are there if derivatives cannot do without them, or if they are asked for.
TEST(TypedCalls, GiveTheFirstOfOutputsThatMayBeAbsent) {
  const Variable a = var({1}), b = var({2});
  const Variable both = ops::concat({a, b}, {.axis = 0});
  EXPECT_EQ(values_of(both), (Numbers{1, 2}));
  EXPECT_FALSE(ops::concat({a, b}, {.axis = 0}).split_info.defined());
  EXPECT_TRUE(ops::concat({a, b}, {.axis = 0, .outputs = 2}).split_info.defined());
  const ops::DropoutOutputs dropped = ops::dropout(a, {.ratio = 0});
  EXPECT_TRUE(dropped.mask.defined());
  backward(ops::sum_elements(dropped));
  EXPECT_EQ(grad_of(a), (Numbers{1}));
}

// BatchNorm has one output with is_test, and five without.
TEST(TypedCalls, GiveAsManyOutputsAsTheArgumentsAllow) {
  const Variable x = var({2, 1}, {1, 3}), scale = var({2}), bias = var({5}), mean = constant({1}),
                 spread = constant({4});
  const ops::BatchNormOutputs tested = ops::batch_norm(x, scale, bias, mean, spread, {.is_test = true, .epsilon = 0});
  EXPECT_EQ(values_of(tested), (Numbers{5, 7}));
  EXPECT_FALSE(tested.running_mean.defined());
  backward(ops::sum_elements(tested));
  EXPECT_EQ(grad_of(x), (Numbers{1, 1}));
  EXPECT_EQ(values_of(ops::spatial_bn(x, scale, bias, mean, spread, {.is_test = true, .epsilon = 0})), (Numbers{5, 7}));
  EXPECT_TRUE(ops::batch_norm(x, scale, bias, mean, spread, {.is_test = false}).saved_inv_std.defined());
  expect_contains(error_text([&] { ops::batch_norm(x, scale, bias, mean, spread, {.is_test = true, .outputs = 5}); }),
                  "the output Y alone");
}

TEST(TypedCalls, GiveAListOfOutputs) {
  const std::vector<Variable> parts = ops::split(var({1, 2, 3, 4}), {}, 2, {.axis = 0});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(values_of(parts[1]), (Numbers{3, 4}));
}

TEST(TypedCalls, RefuseNumbersOfOutputsThatThereCannotBe) {
  const Variable a = var({1, 2});
  for (const int outputs : {-1, 0, 3})
    expect_contains(error_text([&] {
                      ops::concat({a, a}, {.axis = 0, .outputs = outputs});
                    }),
                    fmt::format("Concat is asked for {} outputs", outputs));
  expect_contains(error_text([&] { ops::split(a, {}, 0, {.axis = 0}); }), "Split is asked for 0 outputs");
}

TEST(TypedCalls, TakeInputsThatMayBeAbsent) {
  const Variable x = var({1, 2}, {1, 2}), w = var({1, 2}, {3, 4}), k = var({2}, {5, 6});
  EXPECT_EQ(values_of(ops::fc_columns(x, w)), (Numbers{11}));
  EXPECT_EQ(values_of(ops::fc_columns(x, w, var({10}))), (Numbers{21}));
  EXPECT_EQ(values_of(ops::weighted_sum({var({1, 1}), var({2}), k, var({3})})), (Numbers{17, 20}));
}

TEST(TypedCalls, WriteInPlaceUnderANameOfTheirOwn) {
  const Variable leaf = var({1, 2}), k = constant({3, 4});
  const Variable x = ops::add(leaf, leaf);
  const Variable same = ops::mul_(x, k);
  EXPECT_TRUE(same.is_same(x));
  EXPECT_EQ(values_of(x), (Numbers{6, 16}));
  backward(ops::sum_elements(x));
  EXPECT_EQ(grad_of(leaf), (Numbers{6, 8}));
  const Variable yes(Tensor::of<bool>({1}, {true}));
  EXPECT_TRUE(ops::not_in_place(ops::not_(yes)).value().item<bool>());
}

// All outputs that may overwrite an input do.
TEST(TypedCalls, OfOptimizersInPlaceOverwriteTheirState) {
  const Variable param = constant({1}), moment = constant({0}), lr = constant({-1});
  const ops::AdagradOutputs after = ops::adagrad_(param, moment, constant({2}), lr);
  EXPECT_TRUE(after.output_param.is_same(param));
  EXPECT_TRUE(after.output_moment_1.is_same(moment));
  EXPECT_EQ(values_of(moment), (Numbers{4}));
}

TEST(TypedCalls, NameTheirCallersLine) {
  const int line = __LINE__ + 1;
  const std::string text = error_text([&] { ops::mul(var({1, 2}), var({1, 2, 3})); });
  expect_contains(text, fmt::format("typed_call_test.cc:{}", line));
  expect_contains(error_text([&] { ops::top_k(var({1}), {}); }), "typed_call_test.cc");
}

// Neither a message nor a key is built.
TEST(TypedCalls, WithoutArgumentsAllocateNoMoreThanABoundOperator) {
  if (!stepnet::testing::counts_heap()) GTEST_SKIP() << "operator new is not counted here";
  const Variable a = constant({1}), b = constant({2});
  const auto bound = EagerOp::get({.type = "Mul", .inputs = {true, true}, .outputs = {true}});
  const Variable inputs[] = {a, b};
  const auto allocations = [](auto fn) {
    fn();
    const int64_t before = stepnet::testing::heap_allocations();
    fn();
    return stepnet::testing::heap_allocations() - before;
  };
  EXPECT_EQ(allocations([&] { ops::mul(a, b); }), allocations([&] { run1(*bound, inputs); }));
}

}  // namespace
}  // namespace stepnet::autograd::testing::typed_call_test
