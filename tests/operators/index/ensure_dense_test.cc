#include "tests/operators/op_test.h"

namespace stepnet::testing::ensure_dense_test {
namespace {

TEST(EnsureDense, IsTheIdentity) {
  const Tensor x = normal<float>({2, 3});
  EXPECT_EQ(compare(run_op_on(make_op("EnsureDense", {"X"}, {"Y"}), {{"X", x}})[0], x, 0), "");
  EXPECT_EQ(compare(run_op_on(make_op("EnsureDense", {"X"}, {"X"}), {{"X", x}})[0], x, 0), "");
  EXPECT_EQ(check_gradient(make_op("EnsureDense", {"X"}, {"Y"}), {{"X", normal<double>({2, 3})}}, {"X"}), "");
}

}  // namespace
}  // namespace stepnet::testing::ensure_dense_test
