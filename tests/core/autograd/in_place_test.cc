// Operators in place, views and aliases: what happens to histories, and what is refused.
#include <gtest/gtest.h>

#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::in_place_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

class TapeInPlace : public TapeTest {};

// A constant requires a gradient once a value that does is added to it.
TEST_F(TapeInPlace, RequiresGradInplace) {
  const Variable a = constant({1, 1}), x = var({2, 3});
  EXPECT_FALSE(a.requires_grad());
  apply_in_place("Add", {a, x});
  EXPECT_TRUE(a.requires_grad());
  EXPECT_FALSE(a.is_leaf());
  backward(sum_of(apply("Mul", {a, a})));
  EXPECT_EQ(grad_of(x), (Numbers{6, 8}));
}

// A constant may be written before it is made a leaf that requires a gradient, and not after, also not by a view.
TEST_F(TapeInPlace, NoRequiresGradInplace) {
  Variable x = constant({2, 3});
  const Variable one = constant({1, 1});
  apply_in_place("Add", {x, one});
  x.set_requires_grad();
  backward(sum_of(apply("Add", {x, one})));
  EXPECT_EQ(grad_of(x), (Numbers{1, 1}));
  expect_contains(error_text([&] {
                    apply_in_place("Add", {x, one});
                  }),
                  "Add would write in place to a leaf that requires a gradient, double[2]");
  expect_contains(error_text([&] { x.copy_(one); }), "copy_ would write in place to a leaf");
  EXPECT_EQ(x.version(), 1U);
  EXPECT_EQ(values_of(x), (Numbers{3, 4}));
}

// A view of a leaf is refused by the operator itself, not later in a backward pass.
TEST_F(TapeInPlace, InplaceOnViewLeafErrors) {
  const Variable x = var({2, 3}), one = constant({1, 1});
  const Variable view = apply("Alias", {x});
  EXPECT_TRUE(view.is_view());
  expect_contains(error_text([&] { apply_in_place("Add", {view, one}); }), "Add would write in place to a view");
  Variable unrecorded;
  {
    const NoGrad no_grad;
    unrecorded = apply("Alias", {x});
  }
  EXPECT_FALSE(unrecorded.requires_grad());
  expect_contains(error_text([&] { apply_in_place("Add", {unrecorded, one}); }), "would write in place to a view");
  EXPECT_EQ(x.version(), 0U);
}

// A view is refused before the operator saves its output there; nothing is left behind.
TEST_F(TapeInPlace, InplaceOnViewSavedOutput) {
  const Variable x = var({2, 3});
  const Variable h = apply("Negative", {x});
  Variable view = apply("Alias", {h});
  const uint64_t version = h.version();
  expect_contains(error_text([&] { apply_in_place("Exp", {view}); }), "Exp would write in place to a view, double[2]");
  expect_contains(error_text([&] { view.copy_(x); }), "write to the base, or to a copy");
  EXPECT_EQ(h.version(), version);
}

// After a refusal the history is what it was, to second order too.
TEST_F(TapeInPlace, InplaceOnViewWeakGradFn) {
  const Variable x = var({2, 3});
  const Variable h = apply("Mul", {x, x});
  const Variable view = apply("Alias", {h});
  error_text([&] { apply_in_place("Exp", {view}); });
  const Variable first = grad({sum_of(apply("Mul", {view, x}))}, {x}, {.create_graph = true})[0].dense;
  EXPECT_EQ(values_of(first), (Numbers{12, 27}));
  EXPECT_EQ(values_of(grad({sum_of(first)}, {x})[0].dense), (Numbers{12, 18}));
}

// A recorded view is of no use once its base was written, and one taken again is.
TEST_F(TapeInPlace, RecordedViewOfAWrittenBase) {
  const Variable x = var({2, 3});
  const Variable h = apply("Negative", {x});
  const Variable view = apply("Alias", {h});
  apply_in_place("Mul", {h, constant({5, 7})});
  expect_contains(error_text([&] { sum_of(view); }),
                  "double[2] is a view, and what it is a view of was written in place since it was taken");
  backward(sum_of(apply("Alias", {h})));
  EXPECT_EQ(grad_of(x), (Numbers{-5, -7}));
}

// A view of a constant: may be written with constants, not with what requires a gradient, and is of no use once its
// base has got a history, whether or not the base is still there.
TEST_F(TapeInPlace, ViewOfAConstant) {
  const Variable x = var({2, 3}), one = constant({1, 1});
  Variable base = constant({0, 0});
  const Variable view = apply("Alias", {base});
  apply_in_place("Add", {view, one});
  EXPECT_EQ(values_of(base), (Numbers{1, 1}));
  expect_contains(error_text([&] { apply_in_place("Add", {view, x}); }), "to a view, double[2], of a constant");
  apply_in_place("Add", {base, one});
  EXPECT_FALSE(sum_of(view).requires_grad());
  apply_in_place("Add", {base, x});
  expect_contains(error_text([&] { sum_of(view); }), "take the view again");
  base = {};
  expect_contains(error_text([&] { sum_of(view); }), "take the view again");
  const NoGrad no_grad;
  EXPECT_EQ(values_of(sum_of(view)), (Numbers{9}));
}

// Writing rows of a leaf while nothing is recorded leaves it a leaf, and raises its version.
TEST_F(TapeInPlace, NoGradAssignment) {
  const Variable x = var({3, 1}, {1, 2, 3}), indices(Tensor::of<int32_t>({1}, {1}));
  {
    const NoGrad no_grad;
    apply_in_place("ScatterAssign", {x, indices, Variable(Tensor::of<double>({1, 1}, {9}))});
  }
  EXPECT_TRUE(x.is_leaf());
  EXPECT_TRUE(x.requires_grad());
  EXPECT_EQ(x.version(), 1U);
  EXPECT_EQ(values_of(x), (Numbers{1, 9, 3}));
}

// Writing rows has no derivative, and says so where it would need one.
TEST_F(TapeInPlace, Setitem) {
  const Variable x = constant({1, 2, 3}), indices(Tensor::of<int32_t>({1}, {1}));
  const Variable rows = apply("Negative", {var({4})});
  expect_contains(error_text([&] { apply_in_place("ScatterAssign", {x, indices, rows}); }), "ScatterAssign");
  EXPECT_EQ(values_of(x), (Numbers{1, 2, 3}));
  EXPECT_FALSE(x.requires_grad());
}

// A detached alias has the bytes and no gradient.
TEST_F(TapeInPlace, Detach) {
  const Variable x = var({2, 3});
  Variable y = apply("Mul", {x, constant({5, 7})});
  const Variable alias = y.detach();
  EXPECT_FALSE(alias.requires_grad());
  EXPECT_TRUE(alias.is_leaf());
  EXPECT_TRUE(alias.value().shares_storage(y.value()));
  backward(sum_of(apply("Add", {y, apply("Mul", {alias, x})})));
  EXPECT_EQ(grad_of(x), (Numbers{15, 28}));
  y.detach_();
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(y.grad_fn(), nullptr);
}

// Cutting a base off from its history leaves its views attached; a view itself cannot be cut off.
TEST_F(TapeInPlace, DetachBase) {
  const Variable x = var({2, 3});
  Variable base = apply("Negative", {x});
  Variable view = apply("Alias", {base});
  base.detach_();
  EXPECT_FALSE(base.requires_grad());
  EXPECT_TRUE(view.requires_grad());
  expect_contains(error_text([&] { view.detach_(); }), "detach_: the variable is a view");
  backward(sum_of(view));
  EXPECT_EQ(grad_of(x), (Numbers{-1, -1}));
}

// What is cut off no longer retains gradients of what it was.
TEST_F(TapeInPlace, DetachStopsRetaining) {
  const Variable x = var({2, 3});
  Variable y = apply("Negative", {x});
  y.retain_grad();
  const Variable loss = sum_of(y);
  y.detach_();
  backward(loss);
  EXPECT_FALSE(y.grad().defined());
  Variable z = apply("Negative", {x});
  z.retain_grad();
  const Variable other = sum_of(z);
  z.copy_(constant({1, 1}));
  backward(other);
  EXPECT_FALSE(z.requires_grad());
  EXPECT_FALSE(z.grad().defined());
}

// Which aliases may be written: those without a base on the tape.
TEST_F(TapeInPlace, InplaceNotRequiresGrad) {
  const Variable x = var({2, 3}), one = constant({1, 1});
  const Variable h = apply("Negative", {x});
  const Variable alias = h.detach();
  apply_in_place("Add", {alias, one});
  EXPECT_EQ(values_of(h), (Numbers{-1, -2}));
  apply_in_place("Add", {alias, x});
  EXPECT_TRUE(alias.requires_grad());
  backward(sum_of(alias));
  EXPECT_EQ(grad_of(x), (Numbers{1, 1}));
}

// The copy of what is overwritten is made only if a formula that will run reads it.
TEST_F(TapeInPlace, CopiesOfWhatIsOverwritten) {
  const Variable x = var({2, 3}), trained = var({5, 7}), k = constant({5, 7});
  const auto copies = [&](const char* type, const std::vector<Variable>& others) {
    const Variable y = apply("Negative", {x});
    const Count cloned(TapeEvent::input_cloned);
    std::vector<Variable> inputs = {y};
    inputs.insert(inputs.end(), others.begin(), others.end());
    apply_in_place(type, inputs);
    return cloned();
  };
  EXPECT_EQ(copies("Mul", {k}), 0);
  EXPECT_EQ(copies("Mul", {trained}), 1);
  EXPECT_EQ(copies("Div", {k}), 0);
  EXPECT_EQ(copies("Add", {trained}), 0);
  EXPECT_EQ(copies("Exp", {}), 0);
  EXPECT_EQ(copies("Sqr", {}), 1);
  EXPECT_EQ(copies("AddCMul", {k, trained}), 0);
}

// Bytes: with a constant factor nothing is kept of what was there, with a trained one the copy.
TEST_F(TapeInPlace, BytesOfWhatIsOverwritten) {
  constexpr int64_t kBytes = 1024 * 8;
  for (const bool is_trained : {false, true}) {
    const Variable x(Tensor::zeros(DType::float64, {1024}), true), k(Tensor::zeros(DType::float64, {1024}), is_trained);
    const Variable y = apply("Negative", {x});
    const int64_t before = live_bytes();
    apply_in_place("Mul", {y, k});
    EXPECT_EQ(live_bytes() - before, is_trained ? kBytes : 0);
  }
}

// With both inputs the variable that is overwritten.
TEST_F(TapeInPlace, TimesItself) {
  const Variable x = var({2, 3});
  const Variable y = apply("Negative", {x});
  const Count cloned(TapeEvent::input_cloned);
  apply_in_place("Mul", {y, y});
  EXPECT_EQ(cloned(), 1);
  EXPECT_EQ(values_of(y), (Numbers{4, 9}));
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{4, 6}));
}

// A variable overwritten with what was computed from it: right if that does not read the old value, refused if it does.
TEST_F(TapeInPlace, CopyOfAFunctionOfItself) {
  const Variable x = var({1, 2});
  Variable y = apply("Negative", {x});
  y.copy_(apply("Exp", {y}));
  backward(sum_of(y));
  EXPECT_NEAR(grad_of(x)[1], -std::exp(-2.0), 1e-15);
  Variable z = apply("Negative", {x});
  z.copy_(apply("Sqr", {z}));
  expect_contains(error_text([&] { backward(sum_of(z)); }), "SqrGradient: X, double[2], was saved at version");
}

// From an alias of itself, and from other rows of the same buffer that overlap.
TEST_F(TapeInPlace, CopyOfOverlappingBytes) {
  const Tensor buffer = Tensor::of<double>({5}, {1, 2, 3, 4, 5});
  Variable to(buffer.rows(1, 4));
  to.copy_(Variable(buffer.rows(0, 4)));
  EXPECT_EQ(values_of(Variable(buffer)), (Numbers{1, 1, 2, 3, 4}));
  to.copy_(to.detach());
  EXPECT_EQ(values_of(to), (Numbers{1, 2, 3, 4}));
}

// A leaf that a pass still flows to, but that has become interior, gets no gradient.
TEST_F(TapeInPlace, LeafThatBecameInterior) {
  Variable x = var({2, 3});
  const Variable w = var({1, 1});
  const Variable before = sum_of(apply("Negative", {x}));
  x.set_requires_grad(false);
  x.copy_(w);
  backward(before);
  EXPECT_FALSE(x.grad().defined());
  backward(sum_of(x));
  EXPECT_EQ(grad_of(w), (Numbers{1, 1}));
}

// A result that does not fit what it should overwrite leaves that as it was.
TEST_F(TapeInPlace, RefusedResultsChangeNothing) {
  const Variable y = var({1, 3}, {1, 2, 3}, false), wide = var({2, 3}, {1, 1, 1, 1, 1, 1}, false);
  expect_contains(error_text([&] { run("Add", {y, wide}, {make_arg("broadcast", 1)}, {.in_place = true}); }), "Add");
  EXPECT_EQ(y.shape(), (Shape{1, 3}));
  EXPECT_EQ(values_of(y), (Numbers{1, 2, 3}));
  expect_contains(error_text([&] { apply_in_place("Add", {Variable(), wide}); }), "Add");
}

// While nothing is recorded a recorded variable may be written, and keeps its history.
TEST_F(TapeInPlace, WritesThatAreNotRecorded) {
  const Variable x = var({2, 3});
  Variable y = apply("Negative", {x});
  {
    const NoGrad no_grad;
    y.copy_(constant({7, 7}));
    apply_in_place("Add", {y, constant({1, 1})});
  }
  EXPECT_EQ(values_of(y), (Numbers{8, 8}));
  backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{-1, -1}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::in_place_test
