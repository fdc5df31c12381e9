// DotProduct, L1Distance and SquaredL2Distance against plain loops and central differences.
#include <cmath>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/reduce/row_pairs_testing.h"

namespace stepnet::testing::row_pairs_test {
namespace {

namespace of_dot_product {

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

}  // namespace of_dot_product

namespace of_l1_distance {

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

}  // namespace of_l1_distance

// With the difference as an output the gradients read it alone, and have the same bits.
TEST(Distances, GradientsReadTheDifferenceIfItIsThere) {
  for (const std::string type : {"L1Distance", "SquaredL2Distance"}) {
    const OperatorDef def = make_op(type, {"X", "Y"}, {"Z", "difference"});
    EXPECT_EQ(gradient_reads(pair_def(type), "X"), "X Y") << type;
    for (const char* input : {"X", "Y"}) EXPECT_EQ(gradient_reads(def, input), "difference") << type;
    for (const Shape& shape : {Shape{3, 4}, Shape{2, 2, 3}, Shape{5}, Shape{}, Shape{0, 3}, Shape{3, 0}}) {
      const Feeds feeds = pair_feeds(shape);
      const auto made = run_op_on(def, feeds);
      EXPECT_EQ(compare(made[0], run_op_on(pair_def(type), feeds)[0], 0), "") << type << shape.str();
      EXPECT_EQ(compare(made[1], run_op_on(make_op("Sub", {"X", "Y"}, {"D"}), feeds)[0], 0), "") << type << shape.str();
      for (const std::vector<std::string>& outputs : {std::vector<std::string>{"Z"}, {"difference"}, {}})
        EXPECT_EQ(check_gradient(def, feeds, {"X", "Y"}, 1e-7, 1e-5, outputs), "") << type << shape.str();
    }
  }
}

namespace of_squared_l2_distance {

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

}  // namespace of_squared_l2_distance

}  // namespace
}  // namespace stepnet::testing::row_pairs_test
