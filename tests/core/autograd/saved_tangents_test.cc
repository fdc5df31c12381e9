// Tangents of saved values: they are kept and released with them, by single hooks too, and level by level.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "stepnet/saved_value.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing::saved_tangents_test {
namespace {

using Variables = std::vector<Variable>;

class SavedTangents : public TapeTest {};

const SavedValueHooks kCopies = {[](const Tensor& t) { return std::any(t.clone()); },
                                 [](const std::any& object) { return std::any_cast<Tensor>(object); }};

constexpr int64_t kElements = 1000, kBytes = 8000;

// The bytes that are there beyond those of before, in blocks of a value's.
class Blocks {
 public:
  int64_t operator()() const { return (live_bytes() - before_) / kBytes; }

 private:
  int64_t before_ = live_bytes();
};

// They go with the pass that does not keep the graph, although the graph is still there, and not before.
TEST_F(SavedTangents, AreReleasedByThePassThatReleasesTheirValues) {
  for (const char* type : {"Exp", "Sqr"}) {  // which save their output, and their input
    const Variable x(Tensor::zeros(DType::float64, {kElements}), true);
    const TangentLevel level;
    const Blocks held;
    const Variable root = sum_of(apply(type, {level.dual(x, Variable(Tensor::zeros(DType::float64, {kElements})))}));
    EXPECT_GE(held(), 2) << type;
    grad({root}, {x}, {.keep_graph = true});
    EXPECT_GE(held(), 2) << type;
    grad({root}, {x});
    EXPECT_LE(held(), 1) << type << ": what the tangent of the sum reads is still there";
  }
}

// A graph that is dropped lets go of them at once; but the tangent of a saved output was computed from that output, so
// that the two own one another until the level ends or a pass has run.
TEST_F(SavedTangents, GoWithAGraphThatIsDropped) {
  const Variable x(Tensor::zeros(DType::float64, {kElements}), true), v(Tensor::zeros(DType::float64, {kElements}));
  const Blocks held;
  {
    const TangentLevel level;
    const Variable z = level.dual(x, v);
    apply("Sqr", {z});
    EXPECT_EQ(held(), 0) << "a saved input";
    apply("Exp", {z});
    EXPECT_EQ(held(), 2) << "a saved output";
    grad({sum_of(apply("Exp", {z}))}, {x});
    EXPECT_EQ(held(), 2) << "one that a pass has read";
  }
  EXPECT_EQ(held(), 0);
}

// They end with their level too, whoever holds the graph.
TEST_F(SavedTangents, AreReleasedWithTheirLevel) {
  const Variable x(Tensor::zeros(DType::float64, {kElements}), true);
  Variable root;
  const int64_t before = live_bytes();
  {
    const TangentLevel level;
    root = sum_of(apply("Exp", {level.dual(x, Variable(Tensor::zeros(DType::float64, {kElements})))}));
    EXPECT_GE(live_bytes() - before, 2 * kBytes);
  }
  EXPECT_GE(live_bytes() - before, kBytes) << "the value";
  EXPECT_LT(live_bytes() - before, 2 * kBytes) << "its tangent";
  EXPECT_EQ(values_of(grad({root}, {x})[0].dense), Numbers(kElements, 1.0));
}

// Hooks on one value, registered when it is saved already.
TEST_F(SavedTangents, StayBesideWhatOneHookPacks) {
  const Variable x = var({2});
  const TangentLevel level;
  const Variable z = level.dual(x, constant({3})), e = apply("Exp", {z}), y = apply("Mul", {z, e});
  node_of(e).saved_output(0)->register_hooks(kCopies);
  node_of(y).saved_input(0)->register_hooks(kCopies);
  node_of(y).saved_input(1)->register_hooks(kCopies);
  const Variable g = grad({y}, {x})[0].dense;
  EXPECT_NEAR(values_of(g)[0], 3 * std::exp(2.0), 1e-12);                     // (1 + x) e^x
  EXPECT_NEAR(values_of(level.tangent(g))[0], 3 * 4 * std::exp(2.0), 1e-12);  // v (2 + x) e^x
}

// y = x e^x moves at two levels along 1. The gradient of x is (1 + x) e^x; at each level it moves by (2 + x) e^x, and
// the inner tangent by (3 + x) e^x at the outer level. What ends with the inner level is the inner tangent alone.
TEST_F(SavedTangents, OfNestedLevelsAreToldApart) {
  for (const bool hooks : {false, true}) {
    const double e2 = std::exp(2.0);
    const Variable x = var({2});
    std::optional<SavedValueHooksScope> scope;
    if (hooks) scope.emplace(kCopies);
    const TangentLevel outer;
    Variable y;
    {
      const TangentLevel inner;
      const Variable z = inner.dual(outer.dual(x, constant({1})), constant({1}));
      y = apply("Mul", {z, apply("Exp", {z})});
      const Variable g = grad({y}, {x}, {.keep_graph = true})[0].dense;
      EXPECT_NEAR(values_of(g)[0], 3 * e2, 1e-12);
      EXPECT_NEAR(values_of(outer.tangent(g))[0], 4 * e2, 1e-12);
      EXPECT_NEAR(values_of(inner.tangent(g))[0], 4 * e2, 1e-12);
      EXPECT_NEAR(values_of(outer.tangent(inner.tangent(g)))[0], 5 * e2, 1e-12);
    }
    const Variable g = grad({y}, {x})[0].dense;
    EXPECT_NEAR(values_of(g)[0], 3 * e2, 1e-12);
    EXPECT_NEAR(values_of(outer.tangent(g))[0], 4 * e2, 1e-12);
  }
}

// The variable that was saved may move elsewhere later, or no more.
TEST_F(SavedTangents, AreNoneOfTheVariablesOwn) {
  for (const bool hooks : {false, true}) {
    const Variable x = var({3});
    std::optional<SavedValueHooksScope> scope;
    if (hooks) scope.emplace(kCopies);
    const TangentLevel level;
    Variable z = run("Copy", {level.dual(x, constant({1}))})[0];
    const Variable y = apply("Sqr", {z});
    EXPECT_EQ(values_of(level.tangent(level.dual(z, constant({50})))), Numbers{50});
    z.detach_();
    EXPECT_FALSE(level.tangent(z).defined());
    const Variable g = grad({y}, {x})[0].dense;
    EXPECT_EQ(values_of(g), Numbers{6});
    EXPECT_EQ(values_of(level.tangent(g)), Numbers{2});
  }
}

}  // namespace
}  // namespace stepnet::autograd::testing::saved_tangents_test
