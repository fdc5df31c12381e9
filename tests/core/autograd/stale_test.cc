// Values that were written in place after they were saved: what notices, what does not, and buffers that are reused.
#include <gtest/gtest.h>

#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::stale_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

class TapeStale : public TapeTest {};

// What did not save the overwritten value works, what did is refused, and so the overwritten value itself works.
TEST_F(TapeStale, Inplace) {
  Variable x = var({2, 3});
  const Variable k = constant({5, 7});
  const Variable z = apply("Mul", {x, k});
  const Variable added = apply("Add", {z, k});
  const Variable multiplied = apply("Mul", {z, x});
  const uint64_t before = z.version();
  apply_in_place("Add", {z, k});
  EXPECT_EQ(z.version(), before + 1);
  backward(sum_of(added), {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{5, 7}));
  expect_contains(error_text([&] { backward(sum_of(multiplied)); }), "written in place since");
  x.clear_grad();
  backward(sum_of(z));
  EXPECT_EQ(grad_of(x), (Numbers{5, 7}));
}

// An output that is overwritten in place and saved at its new version is stale after the next write.
TEST_F(TapeStale, InplaceOutputOfAnInplaceOperator) {
  const Variable x = var({2, 3}), k = constant({1, 1});
  const Variable y = apply("Negative", {x});
  apply_in_place("Exp", {y});
  const uint64_t saved = y.version();
  backward(sum_of(y), {.keep_graph = true});
  apply_in_place("Add", {y, k});
  expect_contains(
      error_text([&] { backward(sum_of(y)); }),
      fmt::format("ExpGradient: Y, double[2], was saved at version {} and is at version {} now", saved, saved + 1));
}

// A write through an alias without history is noticed.
TEST_F(TapeStale, DetachThenInplaceRaisesInAutograd) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {x, x}));
  const Variable alias = x.detach();
  apply_in_place("Mul", {alias, constant({2, 2})});
  EXPECT_EQ(values_of(x), (Numbers{4, 6}));
  expect_contains(error_text([&] { backward(y); }), "was saved at version 0 and is at version 1 now");
}

// So is one that is not recorded; the message names operator, value, type, versions, the forward call and what to do.
TEST_F(TapeStale, NoGradModifiesVersion) {
  const Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {x, constant({1, 1})}));
  const Variable z = apply("Mul", {x, x}, {"model.cc", 12});
  {
    const NoGrad no_grad;
    apply_in_place("Mul", {x, x});
  }
  EXPECT_TRUE(x.is_leaf());
  EXPECT_EQ(x.version(), 1U);
  backward(y);
  EXPECT_EQ(error_text([&] { backward(sum_of(z)); }),
            "MulGradient: B, double[2], was saved at version 0 and is at version 1 now: it was written in place since\n"
            "  at  Mul ran forward at model.cc:12\n"
            "  fix write to another variable, or copy it before");
}

// A write by other means can be told, of any type.
TEST_F(TapeStale, IncrementVersion) {
  Variable x = var({2, 3}), n(Tensor::of<int32_t>({1}, {4}));
  const Variable y = sum_of(apply("Mul", {x, x}));
  x.unchecked_value().span<double>()[0] = 7;
  EXPECT_EQ(x.version(), 0U);
  x.bump_version();
  n.bump_version();
  EXPECT_EQ(x.version(), 1U);
  EXPECT_EQ(n.version(), 1U);
  expect_contains(error_text([&] { backward(y); }), "is at version 1 now");
}

// Views share the version both ways, and taking one is no write.
TEST_F(TapeStale, VersionCounter) {
  const Variable x = constant({2, 3}), one = constant({1, 1});
  const Variable view = apply("Alias", {x}), alias = x.detach();
  EXPECT_EQ(x.version(), 0U);
  apply_in_place("Add", {x, one});
  EXPECT_EQ(view.version(), 1U);
  EXPECT_EQ(alias.version(), 1U);
  apply_in_place("Add", {view, one});
  EXPECT_EQ(x.version(), 2U);
  EXPECT_EQ(values_of(alias), (Numbers{4, 5}));
}

// Cutting a variable off from its history leaves what was saved of it as it was.
TEST_F(TapeStale, SavedVariableSavedOriginalInplaceDetach) {
  Variable x = var({2, 3});
  Variable y = apply("Mul", {x, constant({1, 1})});
  const Variable saved_as_input = sum_of(apply("Mul", {y, y}));
  y.detach_();
  EXPECT_FALSE(y.requires_grad());
  backward(saved_as_input);
  EXPECT_EQ(grad_of(x), (Numbers{4, 6}));
  Variable z = apply("Exp", {x});
  const Variable saved_as_output = sum_of(z);
  z.detach_();
  x.clear_grad();
  backward(saved_as_output);
  EXPECT_EQ(grad_of(x), values_of(z));
}

// A stale value that only a trimmed edge would read is no error.
TEST_F(TapeStale, StaleValueOfATrimmedEdge) {
  const Variable x = var({2, 3}), k = var({5, 7});
  const Variable h = apply("Negative", {x});
  const Variable y = sum_of(apply("Mul", {h, k}));
  apply_in_place("Mul", {h, constant({0, 0})});
  EXPECT_EQ(values_of(grad({y}, {x}, {.keep_graph = true})[0].dense), (Numbers{-5, -7}));
  expect_contains(error_text([&] { grad({y}, {k}); }), "MulGradient: A, double[2], was saved at version");
}

// Versions are those of the storage: a write to other bytes of it makes a value stale too.
TEST_F(TapeStale, StaleDisjointView) {
  const Tensor buffer = Tensor::zeros(DType::float64, {4});
  const Variable x = var({2, 3}), first(buffer.rows(0, 2)), second(buffer.rows(2, 2));
  const Variable y = sum_of(apply("Mul", {x, first}));
  apply_in_place("Add", {second, constant({1, 1})});
  expect_contains(error_text([&] { backward(y); }), "MulGradient: B, double[2], was saved at version");
}

// But bytes that an operator does not overwrite are neither copied for it nor stale after it.
TEST_F(TapeStale, DisjointViewsInOneOperator) {
  const Tensor buffer = Tensor::of<double>({4}, {2, 3, 5, 7});
  const Variable k = var({1, 1}), first(buffer.rows(0, 2));
  Variable second(buffer.rows(2, 2));
  const Variable y = apply("Mul", {first, k});
  const Count cloned(TapeEvent::input_cloned);
  second.copy_(y);
  apply_in_place("Mul", {second, first});
  EXPECT_EQ(cloned(), 0);
  EXPECT_EQ(values_of(second), (Numbers{4, 9}));
  EXPECT_EQ(node_of(second).saved_input(1)->saved_version(), second.version());
}

// A state that is overwritten in every step, with s = s * k + w: what a step's product saves is k alone.
Numbers reused_state(const Variable& w, bool multiplier_is_trained) {
  Variable s = constant({0});
  const Variable k = var({2}, multiplier_is_trained);
  for (int t = 0; t < 3; ++t) s.copy_(apply("Add", {apply("Mul", {s, k}), w}));
  backward(sum_of(s));
  return grad_of(w);
}

// A buffer may be reused over time steps with a constant multiplier, and not with a trained one.
TEST_F(TapeStale, BufferReuseOverTimeSteps) {
  EXPECT_EQ(reused_state(var({1}), false), (Numbers{7}));
  expect_contains(error_text([] { reused_state(var({1}), true); }), "MulGradient: A, double[1], was saved at version");
}

// Operators in place keep what they overwrite where it will be read, so that both ways are right.
TEST_F(TapeStale, BufferReuseOverTimeStepsByOperatorsInPlace) {
  for (const bool trained : {false, true}) {
    const Variable s = constant({0}), k = var({2}, trained), w = var({1});
    const Count cloned(TapeEvent::input_cloned);
    for (int t = 0; t < 3; ++t) {
      apply_in_place("Mul", {s, k});
      apply_in_place("Add", {s, w});
    }
    EXPECT_EQ(cloned(), trained ? 3 : 0);
    backward(sum_of(s));
    EXPECT_EQ(grad_of(w), (Numbers{7}));
    EXPECT_EQ(grad_of(k), trained ? (Numbers{5}) : Numbers{});
  }
}

}  // namespace
}  // namespace stepnet::autograd::testing::stale_test
