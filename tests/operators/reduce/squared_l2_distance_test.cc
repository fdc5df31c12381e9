// SquaredL2Distance against plain loops and central differences, to the second order.
#include "tests/operators/reduce/row_pairs_test.h"

namespace stepnet::testing::squared_l2_distance_test {
namespace {

double naive(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sum / 2;
}

TEST(SquaredL2Distance, IsHalved) { EXPECT_EQ(check_pairs("SquaredL2Distance", naive), ""); }
TEST(SquaredL2Distance, Gradients) { EXPECT_EQ(check_pair_gradients("SquaredL2Distance"), ""); }
TEST(SquaredL2Distance, BadShapesAreNamed) { EXPECT_EQ(check_pair_errors("SquaredL2Distance"), ""); }

TEST(SquaredL2Distance, GradientsOfGradients) {
  EXPECT_EQ(check_pair_second_order("SquaredL2Distance"), "");
  Feeds feeds = pair_feeds({3, 4});
  feeds.emplace_back("dZ", normal<double>({3}, 3));
  const OperatorDef def = make_op("SquaredL2DistanceGradient", {"X", "Y", "dZ"}, {"dX", "dY"});
  for (const char* output : {"dX", "dY"})
    EXPECT_EQ(check_gradient(def, feeds, {"X", "Y", "dZ"}, 1e-7, 1e-5, {output}), "") << output;
}

}  // namespace
}  // namespace stepnet::testing::squared_l2_distance_test
