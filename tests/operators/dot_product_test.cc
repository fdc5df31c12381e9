// DotProduct against plain loops and central differences, to the second order.
#include "tests/operators/row_pairs_test.h"

namespace stepnet::testing {
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

}  // namespace
}  // namespace stepnet::testing
