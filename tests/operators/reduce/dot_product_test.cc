// DotProduct against plain loops and central differences, to the second order.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/reduce/row_pairs_test.h"

namespace stepnet::testing::dot_product_test {
namespace {

double naive(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

TEST(DotProduct, OfEachPairOfRows) { EXPECT_EQ(check_pairs("DotProduct", naive), ""); }
TEST(DotProduct, Gradients) { EXPECT_EQ(check_pair_gradients("DotProduct"), ""); }
TEST(DotProduct, BadShapesAreNamed) { EXPECT_EQ(check_pair_errors("DotProduct"), ""); }

TEST(DotProduct, GradientsOfGradients) {
  EXPECT_EQ(check_pair_second_order("DotProduct"), "");
  Feeds feeds = pair_feeds({3, 4});
  feeds.emplace_back("dZ", normal<double>({3}, 3));
  const OperatorDef def = make_op("DotProductGradient", {"X", "Y", "dZ"}, {"dX", "dY"});
  EXPECT_EQ(check_gradient(def, feeds, {"Y", "dZ"}, 1e-7, 1e-5, {"dX"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"X", "dZ"}, 1e-7, 1e-5, {"dY"}), "");
}

TEST(DotProduct, OfRowsWithThemselves) {
  EXPECT_EQ(check_gradient(make_op("DotProduct", {"X", "X"}, {"Z"}), {{"X", normal<double>({3, 4})}}, {"X"}), "");
}

TEST(DotProduct, EachGradientReadsTheOtherInputAlone) {
  const OperatorDef def = make_op("DotProduct", {"X", "Y"}, {"Z"});
  EXPECT_EQ(gradient_reads(def, "X"), "Y");
  EXPECT_EQ(gradient_reads(def, "Y"), "X");
}

// One dimension would be as many rows of one element.
TEST(DotProduct, OfVectors) {
  const Feeds feeds = {{"X", Tensor::of<double>({1, 3}, {1, 2, 3})}, {"Y", Tensor::of<double>({1, 3}, {4, 5, 6})}};
  const OperatorDef def = make_op("DotProduct", {"X", "Y"}, {"Z"});
  EXPECT_EQ(compare(run_op_on(def, feeds)[0], Tensor::of<double>({1}, {32}), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::dot_product_test
