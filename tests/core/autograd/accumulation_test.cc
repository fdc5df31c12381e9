// How gradients add up: in buffers of nodes and in leaves, in which bytes, dense and sparse.
#include <gtest/gtest.h>

#include "core/autograd/variable_state.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing::accumulation_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;

class TapeAccumulation : public TapeTest {};

Variable rows_of(const Variable& table, std::initializer_list<int32_t> indices) {
  const Variable at(Tensor::of<int32_t>({static_cast<int64_t>(indices.size())}, indices));
  return run("Gather", {table, at}, {make_arg("dense_gradient", 0)})[0];
}

// Later gradients are added in place, but while recording apart.
TEST_F(TapeAccumulation, AccumulateGrad) {
  Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {x, x}));
  const Count copied(TapeEvent::gradient_copied), apart(TapeEvent::added_apart);
  backward(y, {.keep_graph = true});
  const Variable first = x.grad().dense;
  backward(y, {.keep_graph = true});
  EXPECT_TRUE(x.grad().dense.is_same(first));
  EXPECT_EQ(values_of(first), (Numbers{8, 12}));
  EXPECT_EQ(copied(), 0);
  EXPECT_EQ(apart(), 0);
  backward(y, {.create_graph = true});
  EXPECT_FALSE(x.grad().dense.is_same(first));
  EXPECT_EQ(values_of(first), (Numbers{8, 12}));
  EXPECT_EQ(grad_of(x), (Numbers{12, 18}));
  x.clear_grad();
}

// A gradient with a history is not overwritten when a pass that does not record adds to it.
TEST_F(TapeAccumulation, AccumulateGradOntoARecordedOne) {
  Variable x = var({2, 3});
  const Variable y = sum_of(apply("Mul", {apply("Mul", {x, x}), x}));
  backward(y, {.create_graph = true});
  const Variable first = x.grad().dense;
  backward(y, {.keep_graph = true});
  EXPECT_EQ(grad_of(x), (Numbers{24, 54}));
  EXPECT_EQ(values_of(first), (Numbers{12, 27}));
  EXPECT_EQ(values_of(grad({sum_of(first)}, {x})[0].dense), (Numbers{12, 18}));
  x.clear_grad();
}

// Two leaves to which one recorded gradient flows have gradients of their own, with the same history.
TEST_F(TapeAccumulation, RecordedGradientsAreNotShared) {
  Variable a = var({2, 3}), b = var({5, 7}), w = var({1, 2});
  backward(sum_of(apply("Mul", {apply("Add", {a, b}), w})), {.create_graph = true});
  {
    const NoGrad no_grad;
    apply_in_place("Mul", {a.grad().dense, constant({0, 0})});
  }
  EXPECT_EQ(grad_of(a), (Numbers{0, 0}));
  EXPECT_EQ(grad_of(b), (Numbers{1, 2}));
  EXPECT_EQ(values_of(grad({sum_of(b.grad().dense)}, {w})[0].dense), (Numbers{1, 1}));
  for (Variable* v : {&a, &b, &w}) v->clear_grad();
}

// A gradient with history that the caller gives is kept without it by a pass that does not record.
TEST_F(TapeAccumulation, HistoryOfTheCallersGradient) {
  const Variable x = var({2, 3}), w = var({5, 7});
  backward({x}, {apply("Negative", {w})});
  EXPECT_FALSE(x.grad().dense.requires_grad());
  EXPECT_EQ(grad_of(x), (Numbers{-5, -7}));
}

// A leaf's gradient stays the same variable when dense or sparse ones are added, and never takes a dense one as rows.
TEST_F(TapeAccumulation, AccumulateGradTensorReference) {
  const Variable x = var({3, 1}, {1, 2, 3});
  backward(sum_of(apply("Negative", {x})));
  const Variable dense = x.grad().dense;
  backward(sum_of(rows_of(x, {1, 1})));
  EXPECT_TRUE(x.grad().dense.is_same(dense));
  EXPECT_EQ(grad_of(x), (Numbers{-1, 1, -1}));
  const Variable t = var({3, 1}, {1, 2, 3});
  backward(sum_of(rows_of(t, {1, 1})));
  EXPECT_TRUE(t.grad().is_sparse());
  backward(sum_of(rows_of(t, {2})));
  ASSERT_TRUE(t.grad().is_sparse());
  EXPECT_EQ(values_of(t.grad().values), (Numbers{1, 1, 1}));
  backward(sum_of(t));
  ASSERT_FALSE(t.grad().is_sparse());
  EXPECT_EQ(grad_of(t), (Numbers{1, 3, 2}));
}

// Gradients of tensors without elements, and those that broadcast from one.
TEST_F(TapeAccumulation, AccumulateGradWithZeroNumelGrad) {
  const Variable none(Tensor::zeros(DType::float64, {0, 3}), true), row = var({2, 3, 5});
  const Variable y = broadcast("Add", none, row);
  backward(sum_of(y));
  EXPECT_EQ(none.grad().value().shape(), (Shape{0, 3}));
  EXPECT_EQ(grad_of(row), (Numbers{0, 0, 0}));
}

// The first gradient is taken over. One that goes to two leaves is taken over by one and copied by the other.
TEST_F(TapeAccumulation, NoGradCopy) {
  const Variable x = var({2, 3}), y = var({5, 7});
  const Count copied(TapeEvent::gradient_copied);
  backward(sum_of(apply("Mul", {x, constant({1, 2})})));
  EXPECT_EQ(copied(), 0);
  Variable a = var({2, 3}), b = var({5, 7});
  const std::byte* made = nullptr;
  const Variable sum = apply("Add", {a, b});
  sum.register_hook([&](const VariableGradient& g) {
    made = g.value().raw();
    return VariableGradient();
  });
  backward(sum_of(sum));
  EXPECT_EQ(copied(), 1);
  EXPECT_NE(a.grad().value().raw(), b.grad().value().raw());
  EXPECT_TRUE(a.grad().value().raw() == made || b.grad().value().raw() == made);
}

// The caller's gradient is copied while the caller has it.
TEST_F(TapeAccumulation, NoGradCopyOfTheCallersGradient) {
  const Variable x = var({2, 3}), given = constant({1, 10});
  const Count copied(TapeEvent::gradient_copied);
  backward({x}, {given});
  EXPECT_EQ(copied(), 1);
  backward({x}, {given});
  EXPECT_EQ(values_of(given), (Numbers{1, 10}));
  EXPECT_EQ(grad_of(x), (Numbers{2, 20}));
}

// Sparse rows likewise.
TEST_F(TapeAccumulation, NoGradCopySparse) {
  const Variable x = var({3, 1}, {1, 2, 3}), t = var({3, 1}, {1, 2, 3});
  const Count copied(TapeEvent::gradient_copied);
  backward(sum_of(apply("Mul", {rows_of(x, {1, 0}), var({2, 1}, {5, 7}, false)})));
  EXPECT_TRUE(x.grad().is_sparse());
  const VariableGradient given =
      VariableGradient::sparse(Variable(Tensor::of<int32_t>({1}, {2})), Variable(Tensor::of<double>({1, 1}, {4})));
  const int64_t before = copied();
  backward({t}, {given});
  EXPECT_EQ(copied(), before + 1);
  backward({t}, {given});
  EXPECT_EQ(values_of(given.values), (Numbers{4}));
  EXPECT_EQ(values_of(t.grad().values), (Numbers{4, 4}));
}

// One gradient that waits at three nodes is not added to in place at one of them.
TEST_F(TapeAccumulation, BackwardCopy) {
  const Variable x = var({1, 1}), y = var({1, 1}), two = constant({2, 2});
  const auto times16 = [&](Variable v) {
    for (int i = 0; i < 4; ++i) v = apply("Mul", {v, two});
    return v;
  };
  const Variable a = apply("Add", {x, two}), b = apply("Add", {y, two}), c = apply("Add", {x, two});
  const Variable near = apply("Add", {apply("Add", {a, b}), c});
  const Variable far = apply("Add", {apply("Add", {times16(a), times16(b)}), times16(c)});
  backward(sum_of(apply("Add", {near, far})));
  EXPECT_EQ(grad_of(x), (Numbers{34, 34}));
  EXPECT_EQ(grad_of(y), (Numbers{17, 17}));
}

// Gradients that the caller gave are not written when dense and sparse ones meet.
TEST_F(TapeAccumulation, InputBufferAccum) {
  const Variable x = var({3, 1}, {1, 2, 3});
  const Variable h = apply("Negative", {x});
  const Variable rows = rows_of(h, {1});
  const Variable given = var({3, 1}, {1, 10, 100}, false), given_rows = var({1, 1}, {5}, false);
  backward({h, rows}, {given, given_rows});
  EXPECT_EQ(grad_of(x), (Numbers{-1, -15, -100}));
  EXPECT_EQ(values_of(given), (Numbers{1, 10, 100}));
  EXPECT_EQ(values_of(given_rows), (Numbers{5}));
}

// The same root twice counts twice.
TEST_F(TapeAccumulation, DuplicateBackwardRoot) {
  const Variable x = var({2, 3}), given = constant({1, 10});
  const Variable y = apply("Mul", {x, x});
  backward({y, y}, {given, given});
  EXPECT_EQ(grad_of(x), (Numbers{8, 120}));
  EXPECT_EQ(values_of(given), (Numbers{1, 10}));
}

// A root may be what another root is computed from.
TEST_F(TapeAccumulation, DependentBackward) {
  const Variable x = var({2, 3});
  const Variable y = apply("Mul", {x, x}), z = apply("Mul", {y, x});
  backward({y, z}, {constant({1, 1}), constant({1, 1})});
  EXPECT_EQ(grad_of(x), (Numbers{2 * 2 + 3 * 4, 2 * 3 + 3 * 9}));
}

// Outputs that nothing is computed from count as zero.
TEST_F(TapeAccumulation, UnusedOutput) {
  const Variable x = var({4, 1}, {1, 2, 3, 4});
  const std::vector<Variable> parts = run("Split", {x}, {make_arg("axis", 0)}, {.outputs = 4});
  backward(sum_of(apply("Mul", {parts[1], parts[3]})));
  EXPECT_EQ(grad_of(x), (Numbers{0, 4, 0, 2}));
}

// A derivative that is none stays none, and a leaf's gradient is not set.
TEST_F(TapeAccumulation, FunctionReturnsUndefinedTensor) {
  const Variable x = var({2, 3}), w = var({1, 1});
  const Variable y = own({x, w}, constant({1, 1}), [](const Gradients& g, const NodeRun&) {
    return Gradients{{}, g[0]};
  });
  backward(sum_of(y));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(grad_of(w), (Numbers{1, 1}));
  const Variable through =
      own({apply("Mul", {x, w})}, constant({1, 1}), [](const Gradients&, const NodeRun&) { return Gradients{{}}; });
  backward(sum_of(through));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(grad({sum_of(apply("Alias", {y}))}, {x}, {.allow_unused = true})[0].defined());
}

// A gradient of another shape names the one expected; one that broadcasts from it is summed up.
TEST_F(TapeAccumulation, InvalidGradients) {
  const Variable x = var({2, 3});
  const Variable wrong = own({x}, constant({1, 1}), [](const Gradients&, const NodeRun&) {
    return Gradients{constant({1, 2, 3})};
  });
  expect_contains(error_text([&] { backward(sum_of(wrong)); }),
                  "what gets a gradient from OwnGradient is double[2], but its gradient is double[3]");
  const Variable wide = own({x}, constant({1, 1}), [](const Gradients&, const NodeRun&) {
    return Gradients{var({3, 2}, {1, 2, 3, 4, 5, 6}, false)};
  });
  backward(sum_of(wide));
  EXPECT_EQ(grad_of(x), (Numbers{9, 12}));
  const Variable other_type = own({x}, constant({1, 1}), [](const Gradients&, const NodeRun&) {
    return Gradients{Variable(Tensor::of<float>({2}, {1, 1}))};
  });
  expect_contains(error_text([&] { backward(sum_of(other_type)); }), "is double[2], but its gradient is float[2]");
}

// As many gradients as inputs, or none at all.
TEST_F(TapeAccumulation, TooManyGrads) {
  const Variable x = var({2, 3});
  const Variable more = own({x}, constant({1, 1}), [](const Gradients& g, const NodeRun&) {
    return Gradients{g[0], {}};
  });
  expect_contains(error_text([&] { backward(sum_of(more)); }), "OwnGradient has made 2 gradients for 1 inputs");
  const Variable none = own({x}, constant({1, 1}), [](const Gradients&, const NodeRun&) { return Gradients{}; });
  backward(sum_of(none));
  EXPECT_FALSE(x.grad().defined());
}

constexpr int64_t kSize = 1024, kBytes = kSize * 8;

// A variable read k times: its gradient and the next one to be added are all that lives at a time.
TEST_F(TapeAccumulation, FanInHoldsTwoGradients) {
  const Tensor ones = Tensor::zeros(DType::float64, {kSize});
  const Variable x(ones.clone(), true), k(ones.clone()), given(ones.clone());
  std::vector<Variable> terms;
  for (int i = 0; i < 8; ++i) terms.push_back(apply("Mul", {x, k}));
  const Variable y = run("Sum", terms)[0];
  terms.clear();
  const Count copied(TapeEvent::gradient_copied), added(TapeEvent::added_in_place), apart(TapeEvent::added_apart);
  const int64_t before = live_bytes();
  allocator(Device{}).reset_peak();
  backward({y}, {given});
  EXPECT_EQ(allocator(Device{}).counters().peak - before, 2 * kBytes);
  EXPECT_EQ(live_bytes() - before, kBytes);
  EXPECT_EQ(added(), 7);
  EXPECT_EQ(apart(), 0);
  EXPECT_EQ(copied(), 0);
}

// Passes over and over: the leaf's gradient, and what is to be added to it.
TEST_F(TapeAccumulation, LaterPassesAddInPlace) {
  const Variable x(Tensor::zeros(DType::float64, {kSize}), true), k(Tensor::zeros(DType::float64, {kSize}));
  const Variable given(Tensor::zeros(DType::float64, {kSize}));
  const Variable y = apply("Mul", {x, k});
  backward({y}, {given}, {.keep_graph = true});
  const std::byte* bytes = x.grad().value().raw();
  const Count added(TapeEvent::added_in_place), apart(TapeEvent::added_apart);
  const int64_t before = live_bytes();
  allocator(Device{}).reset_peak();
  for (int i = 0; i < 3; ++i) backward({y}, {given}, {.keep_graph = true});
  EXPECT_EQ(allocator(Device{}).counters().peak - before, kBytes);
  EXPECT_EQ(x.grad().value().raw(), bytes);
  EXPECT_EQ(added(), 3);
  EXPECT_EQ(apart(), 0);
}

// A few rows are added to a dense gradient where they belong, and no table is made of them: in the leaf, and in the
// sum that flows on from an interior variable.
TEST_F(TapeAccumulation, SparseRowsOntoADenseGradientMakeNoTable) {
  constexpr int64_t kRows = 20000, kColumns = 16, kTable = kRows * kColumns * 8;
  const auto expect_rows = [&](const Variable& g) {
    const auto values = g.value().span<double>();
    for (const auto& [row, times] : {std::pair{0, 0}, {3, 2}, {19999, 1}}) EXPECT_EQ(values[row * kColumns], 5 + times);
  };
  const auto given = [] {
    Tensor t = Tensor::empty(DType::float64, {kRows, kColumns});
    std::ranges::fill(t.span<double>(), 5);
    return Variable(std::move(t));
  };
  const Variable table(Tensor::zeros(DType::float64, {kRows, kColumns}), true);
  table.state()->make_gradient().grad = given();
  int64_t before = live_bytes();
  allocator(Device{}).reset_peak();
  backward(sum_of(rows_of(table, {3, 19999, 3})));
  EXPECT_LE(allocator(Device{}).counters().peak - before, kTable / 100);
  expect_rows(table.grad().dense);
  for (const bool rows_first : {false, true}) {
    const Variable h = run("Scale", {table}, {make_arg("scale", 1.0F)})[0];
    Variable rows = rows_first ? Variable() : rows_of(h, {3, 19999, 3});  // the later one is differentiated first
    const Variable whole = own({h}, var({0}), [&](const Gradients&, const NodeRun&) { return Gradients{given()}; });
    if (rows_first) rows = rows_of(h, {3, 19999, 3});
    before = live_bytes();
    allocator(Device{}).reset_peak();
    const Gradients g = grad({sum_of(rows), whole}, {h});
    EXPECT_LE(allocator(Device{}).counters().peak - before, kTable + kTable / 100) << rows_first;
    expect_rows(g[0].dense);
  }
}

TEST_F(TapeAccumulation, SparseRowsOntoADenseGradientOfAHalfType) {
  const auto halves = [](const Variable& v) {
    return Variable(run("Cast", {v}, {make_arg("to", std::string("bfloat16"))})[0].value());
  };
  Variable table = halves(constant({1, 2, 3}));
  table = Variable(table.value().reshaped({3, 1}), true);
  table.set_grad(Variable(halves(constant({10, 20, 30})).value().reshaped({3, 1})));
  backward({rows_of(table, {2, 0, 2})}, {Variable(halves(constant({1, 1, 1})).value().reshaped({3, 1}))});
  EXPECT_EQ(values_of(run("Cast", {table.grad().dense}, {make_arg("to", std::string("double"))})[0]),
            (Numbers{11, 20, 32}));
}

// What somebody else holds stays as it is.
TEST_F(TapeAccumulation, SparseRowsOntoADenseGradientThatIsHeldMakeACopy) {
  const Variable table = var({3, 1}, {1, 2, 3});
  const Variable kept = var({3, 1}, {10, 20, 30}, false);
  const Variable h = run("Scale", {table}, {make_arg("scale", 1.0F)})[0];
  const Variable whole = own({h}, var({0}), [&](const Gradients&, const NodeRun&) { return Gradients{kept}; });
  const Gradients g = grad({sum_of(rows_of(h, {2, 0, 2})), whole}, {h});
  EXPECT_EQ(values_of(g[0].dense), (Numbers{11, 20, 32}));
  EXPECT_EQ(values_of(kept), (Numbers{10, 20, 30}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::accumulation_test
