// L1Distance against plain loops and central differences.
#include <cmath>

#include "tests/operators/reduce/row_pairs_test.h"

namespace stepnet::testing::l1_distance_test {
namespace {

double naive(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += std::abs(x[i] - y[i]);
  return sum;
}

TEST(L1Distance, OfEachPairOfRows) { EXPECT_EQ(check_pairs("L1Distance", naive), ""); }
TEST(L1Distance, Gradients) { EXPECT_EQ(check_pair_gradients("L1Distance"), ""); }
TEST(L1Distance, BadShapesAreNamed) { EXPECT_EQ(check_pair_errors("L1Distance"), ""); }

TEST(L1Distance, EqualElementsHaveTheGradientZero) {
  const Tensor x = Tensor::of<float>({1, 3}, {1, 2, 3}), y = Tensor::of<float>({1, 3}, {1, 5, 1});
  const auto d = run_op_on(make_op("L1DistanceGradient", {"X", "Y", "dZ"}, {"dX", "dY"}),
                           {{"X", x}, {"Y", y}, {"dZ", Tensor::of<float>({1}, {4})}});
  EXPECT_EQ(compare(d[0], Tensor::of<float>({1, 3}, {0, -4, 4}), 0), "");
  EXPECT_EQ(compare(d[1], Tensor::of<float>({1, 3}, {0, 4, -4}), 0), "");
}

TEST(L1Distance, GradientsOfGradients) {
  Feeds feeds = pair_feeds({3, 4});
  feeds.emplace_back("dZ", normal<double>({3}, 3));
  const OperatorDef def = make_op("L1DistanceGradient", {"X", "Y", "dZ"}, {"dX", "dY"});
  EXPECT_EQ(check_gradient(def, feeds, {"dZ"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dZ"}, 1e-7, 1e-5, {"dX"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dZ"}, 1e-7, 1e-5, {"dY"}), "");
}

}  // namespace
}  // namespace stepnet::testing::l1_distance_test
