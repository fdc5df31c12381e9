// The operators that the tape keeps bound.
#include "stepnet/eager_op.h"

#include <gtest/gtest.h>

#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing::eager_op_test {
namespace {

// More than are kept: those in use stay, with their derivatives, and the others go (which LeakSanitizer checks).
TEST(EagerOps, WithManyDifferentArguments) {
  const Variable x = var({1, 2});
  std::vector<Variable> kept;
  double expected = 0;
  for (int i = 0; i < 10000; ++i) {
    const Variable y = run("Scale", {x}, {make_arg("scale", static_cast<float>(i))})[0];
    if (i % 1000 == 0) {
      kept.push_back(apply("Mul", {y, y}));  // 2 i^2 x
      expected += 2.0 * i * i;
    } else if (i % 10 == 0) {
      EXPECT_EQ(values_of(grad({sum_of(y)}, {x})[0].dense), (Numbers(2, i)));
    }
  }
  for (const Variable& y : kept) backward(sum_of(y));
  EXPECT_EQ(grad_of(x), (Numbers{expected, 2 * expected}));
}

}  // namespace
}  // namespace stepnet::autograd::testing::eager_op_test
