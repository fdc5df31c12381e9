// LayerNorm against plain loops and central differences.
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::layer_norm_test {
namespace {

OperatorDef layer_norm(bool affine, int axis = 1, float epsilon = 1e-5F) {
  return make_op("LayerNorm", affine ? std::vector<std::string>{"X", "gamma", "beta"} : std::vector<std::string>{"X"},
                 {"Y", "mean", "std"},
                 {make_arg("axis", axis), make_arg("epsilon", epsilon), make_arg("elementwise_affine", affine)});
}

template <class T>
Feeds feeds_for(const Shape& x, int64_t row, bool affine) {
  Feeds feeds = {{"X", normal<T>(x, 1, 3, 2)}};
  if (affine) {
    feeds.emplace_back("gamma", normal<T>({row}, 2));
    feeds.emplace_back("beta", normal<T>({row}, 3));
  }
  return feeds;
}

struct Naive {
  Tensor y, mean, deviation;
};

Naive naive(const Feeds& feeds, int64_t row, double epsilon, const Shape& statistics) {
  Naive n{to_double(feeds[0].second), Tensor::empty(DType::float64, statistics),
          Tensor::empty(DType::float64, statistics)};
  for (int64_t r = 0; r < n.mean.size(); ++r) {
    double* y = n.y.data<double>() + r * row;
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < row; ++j) mean += y[j] / static_cast<double>(row);
    for (int64_t j = 0; j < row; ++j) variance += (y[j] - mean) * (y[j] - mean) / static_cast<double>(row);
    n.mean.data<double>()[r] = mean;
    n.deviation.data<double>()[r] = std::sqrt(variance + epsilon);
    for (int64_t j = 0; j < row; ++j) {
      y[j] = (y[j] - mean) / std::sqrt(variance + epsilon);
      if (feeds.size() == 3)
        y[j] = y[j] * to_double(feeds[1].second).data<double>()[j] + to_double(feeds[2].second).data<double>()[j];
    }
  }
  return n;
}

template <class T>
void expect_formula(const Shape& x, int axis, int64_t row, const Shape& statistics, bool affine, double tol) {
  const Feeds feeds = feeds_for<T>(x, row, affine);
  const Naive expected = naive(feeds, row, 0.25, statistics);
  const auto y = run_op_on(layer_norm(affine, axis, 0.25F), feeds);
  EXPECT_EQ(compare(y[0], expected.y, tol), "") << x.str() << axis;
  EXPECT_EQ(compare(y[1], expected.mean, tol), "") << x.str() << axis;
  EXPECT_EQ(compare(y[2], expected.deviation, tol), "") << x.str() << axis;
}

TEST(LayerNorm, ForwardIsTheFormula) {
  for (const bool affine : {false, true}) {
    expect_formula<double>({4, 5}, 1, 5, {4, 1}, affine, 1e-14);
    expect_formula<double>({2, 3, 37}, 2, 37, {2, 3, 1}, affine, 1e-14);
    expect_formula<double>({2, 3, 4}, 1, 12, {2, 1}, affine, 1e-14);
    expect_formula<double>({2, 3, 4}, -1, 4, {2, 3, 1}, affine, 1e-14);
    expect_formula<double>({3, 1}, 1, 1, {3, 1}, affine, 1e-14);
    expect_formula<double>({0, 3}, 1, 3, {0, 1}, affine, 1e-14);
    expect_formula<double>({3, 0}, 1, 0, {3, 1}, affine, 1e-14);
    expect_formula<float>({70, 130}, 1, 130, {70, 1}, affine, 2e-6);
  }
}

TEST(LayerNorm, ALargeMeanLosesNothing) {
  const Tensor x = normal<float>({1, 512}, 1, 1e4, 1);
  EXPECT_EQ(compare(run_op_on(layer_norm(false), {{"X", x}})[2], naive({{"X", x}}, 512, 1e-5, {1, 1}).deviation, 1e-4),
            "");
}

TEST(LayerNorm, Gradients) {
  for (const bool affine : {false, true})
    for (const Shape& x : {Shape{3, 4}, Shape{2, 1}, Shape{1, 7}, Shape{0, 4}, Shape{3, 0}, Shape{2, 2, 3}}) {
      const Feeds feeds = feeds_for<double>(x, x.size_between(1, x.rank()), affine);
      const std::vector<std::string> wrt =
          affine ? std::vector<std::string>{"X", "gamma", "beta"} : std::vector<std::string>{"X"};
      EXPECT_EQ(check_gradient(layer_norm(affine, 1, 0.1F), feeds, wrt), "") << x.str();
      for (const char* only : {"Y", "mean", "std"}) {
        if (only != std::string("Y") && affine) continue;  // gamma and beta have no part in them
        EXPECT_EQ(check_gradient(layer_norm(affine, 1, 0.1F), feeds, wrt, 1e-7, 1e-5, {only}), "") << x.str() << only;
      }
    }
}

TEST(LayerNorm, GradientsOfTheStatisticsAloneReachX) {
  const Feeds feeds = feeds_for<double>({3, 4}, 4, true);
  EXPECT_EQ(check_gradient(layer_norm(true, 1, 0.1F), feeds, {"X"}, 1e-7, 1e-5, {"mean", "std"}), "");
}

TEST(LayerNorm, BadInputIsNamed) {
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  Feeds feeds = feeds_for<float>({2, 4}, 4, true);
  EXPECT_TRUE(has(error_of([&] { run_op_on(layer_norm(false), feeds_for<float>({4}, 4, false)); }), "axis"));
  feeds[2].second = normal<float>({3});
  EXPECT_TRUE(has(error_of([&] { run_op_on(layer_norm(true), feeds); }),
                  "beta is [3], but X [2, 4] has rows of 4 values from axis 1 on"));
  OperatorDef def = layer_norm(true);
  def.mutable_arg()->RemoveLast();
  EXPECT_TRUE(
      has(error_of([&] { run_op_on(def, feeds); }), "with elementwise_affine: 0 it takes X alone, but has 3 inputs"));
  OperatorDef narrow = make_op("LayerNorm", {"X"}, {"Y"});
  EXPECT_TRUE(has(error_of([&] {
                    check_gradient(narrow, {{"X", normal<double>({2, 3})}}, {"X"});
                  }),
                  "the gradient reads the outputs mean and std"));
}

// Of the gradient operator, whose mean and std are inputs like any other.
TEST(LayerNorm, GradientsOfGradients) {
  for (const bool affine : {false, true})
    for (const Shape& x : {Shape{3, 4}, Shape{2, 1}, Shape{0, 4}, Shape{3, 0}, Shape{2, 2, 3}}) {
      const int64_t row = x.size_between(1, x.rank());
      Feeds feeds = {{"dY", normal<double>(x, 1)},
                     {"Y", normal<double>(x, 2)},
                     {"mean", normal<double>({x[0], 1}, 3)},
                     {"std", uniform<double>({x[0], 1}, 1, 2, 4)},
                     {"X", normal<double>(x, 5)},
                     {"gamma", normal<double>({row}, 6)},
                     {"dmean", normal<double>({x[0], 1}, 7)},
                     {"dstd", normal<double>({x[0], 1}, 8)}};
      std::vector<std::string> wrt = {"dY", "mean", "std", "X", "gamma", "dmean", "dstd"};
      if (!affine) std::erase(wrt, "gamma");
      const OperatorDef def =
          make_op("LayerNormGradient", {"dY", "Y", "mean", "std", "X", affine ? "gamma" : "", "dmean", "dstd"},
                  {"dX", "dgamma", "dbeta"}, {make_arg("elementwise_affine", affine)});
      if (!affine) std::erase_if(feeds, [](const auto& feed) { return feed.first == "gamma"; });
      EXPECT_EQ(check_gradient(def, feeds, wrt), "") << x.str() << affine;
      EXPECT_EQ(check_gradient(def, feeds, wrt, 1e-7, 1e-5, {"dX"}), "") << x.str() << affine;
      EXPECT_EQ(check_gradient(def, feeds, {"dY", "mean", "std", "X"}, 1e-7, 1e-5, {"dgamma"}), "") << x.str();
      EXPECT_EQ(check_gradient(def, feeds, {"dY"}, 1e-7, 1e-5, {"dbeta"}), "") << x.str();
    }
}

}  // namespace
}  // namespace stepnet::testing::layer_norm_test
