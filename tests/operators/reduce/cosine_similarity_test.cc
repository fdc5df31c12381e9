// CosineSimilarity against plain loops and central differences.
#include <cmath>

#include "tests/operators/reduce/row_pairs_testing.h"

namespace stepnet::testing::cosine_similarity_test {
namespace {

double naive(const double* x, const double* y, int64_t size) {
  double xx = 0, yy = 0, xy = 0;
  for (int64_t i = 0; i < size; ++i) xx += x[i] * x[i], yy += y[i] * y[i], xy += x[i] * y[i];
  return size > 0 ? xy / std::sqrt(xx * yy) : 0;
}

TEST(CosineSimilarity, OfEachPairOfRows) { EXPECT_EQ(check_pairs("CosineSimilarity", naive), ""); }
TEST(CosineSimilarity, Gradients) { EXPECT_EQ(check_pair_gradients("CosineSimilarity"), ""); }
TEST(CosineSimilarity, BadShapesAreNamed) { EXPECT_EQ(check_pair_errors("CosineSimilarity"), ""); }

TEST(CosineSimilarity, ARowOfZerosGivesZero) {
  const Tensor zero = Tensor::zeros(DType::float32, {1, 2}), y = Tensor::of<float>({1, 2}, {3, 4});
  EXPECT_EQ(run_op_on(pair_def("CosineSimilarity"), {{"X", zero}, {"Y", y}})[0].item<float>(), 0);
  const auto d = run_op_on(make_op("CosineSimilarityGradient", {"X", "Y", "dZ"}, {"dX", "dY"}),
                           {{"X", zero}, {"Y", y}, {"dZ", Tensor::of<float>({1}, {1})}});
  EXPECT_EQ(compare(d[0], Tensor::of<float>({1, 2}, {0.6e6F, 0.8e6F}), 1e-6), "");
  EXPECT_EQ(compare(d[1], zero, 0), "");
}

// Where norms count as 1e-6 the cosine is linear in that row.
TEST(CosineSimilarity, GradientsOfTinyRows) {
  const Feeds feeds = {{"X", normal<double>({2, 3}, 1, 0, 1e-8)}, {"Y", normal<double>({2, 3}, 2)}};
  EXPECT_EQ(check_gradient(pair_def("CosineSimilarity"), feeds, {"X"}, 1e-7, 1e-8), "");
}

TEST(CosineSimilarity, GradientsOfGradients) {
  EXPECT_EQ(check_pair_second_order("CosineSimilarity"), "");
  Feeds feeds = {{"X", normal<double>({2, 3}, 1, 0, 1e-8)}, {"Y", normal<double>({2, 3}, 2)}};
  feeds.emplace_back("dZ", normal<double>({2}, 3, 0, 1e-6));
  const OperatorDef def = make_op("CosineSimilarityGradient", {"X", "Y", "dZ"}, {"dX", "dY"});
  EXPECT_EQ(check_gradient(def, feeds, {"X", "Y", "dZ"}, 1e-6, 1e-8), "");
}

}  // namespace
}  // namespace stepnet::testing::cosine_similarity_test
