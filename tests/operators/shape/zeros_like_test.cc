#include "tests/operators/op_test.h"

namespace stepnet::testing::zeros_like_test {
namespace {

TEST(ZerosLike, HasTypeAndShapeOfTheInput) {
  const OperatorDef def = make_op("ZerosLike", {"X"}, {"Y"});
  EXPECT_EQ(compare(run_op_on(def, {{"X", normal<double>({2, 1})}})[0], Tensor::of<double>({2, 1}, {0, 0}), 0), "");
  EXPECT_EQ(run_op_on(def, {{"X", normal<double>({2, 1})}})[0].str(), "double[2, 1]");
  EXPECT_EQ(run_op_on(def, {{"X", integers<int32_t>({0, 3}, 1, 2)}})[0].str(), "int32[0, 3]");
}

}  // namespace
}  // namespace stepnet::testing::zeros_like_test
