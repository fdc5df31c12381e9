// Storm and SparseStorm against plain loops, and against what Caffe2 1.10 gives.
#include <cmath>

#include "tests/operators/optimizer_steps.h"

namespace stepnet::testing::storm_test {
namespace {

const std::vector<Argument> kArgs = {make_arg("momentum", 5.0F), make_arg("beta", 0.2F)};

TEST(Storm, FollowsItsFormula) {
  for (const Shape& shape : {Shape{3, 4}, Shape{0}, Shape{}, Shape{10000}}) {
    const OptimizerSteps steps = {
        make_op("Storm", {"p", "m", "s", "g", "lr"}, {"p", "m", "s"},
                {make_arg("momentum", 4.0F), make_arg("beta", 0.25F)}),
        {{"p", normal<double>(shape, 1)},
         {"m", normal<double>(shape, 2)},
         {"s", Tensor::of<double>({1}, {2})},
         {"lr", Tensor::scalar<float>(-0.5F)}},
        {"p", "m", "s"},
        shape.size(),
        [](int, int64_t, std::span<const double> grad, std::map<std::string, Values>& states) {
          double& sum = states["s"][0];
          for (const double g : grad) sum += g * g;
          const double rate = -0.5 / std::cbrt(0.25 + sum), alpha = 4 * rate * rate;
          for (size_t i = 0; i < grad.size(); ++i) {
            double& m = states["m"][i] = (1 - alpha) * states["m"][i] + alpha * grad[i];
            states["p"][i] += rate * m;
          }
        }};
    EXPECT_EQ(check_dense_steps(steps, shape), "") << shape.str();
  }
}

TEST(Storm, IsThatOfThePublicFormat) {
  const Feeds feeds = {{"p", Tensor::of<float>({3}, {1, 2, -0.5F})},
                       {"m", Tensor::of<float>({3}, {1, -1.2F, 0.02F})},
                       {"s", Tensor::of<float>({1}, {2})},
                       {"g", Tensor::of<float>({3}, {0.5F, -0.6F, 0.01F})},
                       {"lr", Tensor::of<float>({1}, {-0.1F})}};
  const auto y = run_op_on(make_op("Storm", {"p", "m", "s", "g", "lr"}, {"p", "m", "s"}, kArgs), feeds);
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3}, {0.93002558F, 2.0839694F, -0.50139952F}), 1e-6), "");
  EXPECT_EQ(compare(y[1], Tensor::of<float>({3}, {0.98744571F, -1.1849349F, 0.019748913F}), 1e-6), "");
  EXPECT_EQ(compare(y[2], Tensor::of<float>({1}, {2.6101F}), 1e-6), "");
}

Feeds table_feeds() {
  return {{"p", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
          {"m", Tensor::of<float>({3, 2}, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F})},
          {"s", Tensor::of<float>({1}, {2})},
          {"g", Tensor::of<float>({2, 2}, {0.1F, 0.2F, 0.3F, 0.4F})},
          {"i", Tensor::of<int64_t>({2}, {2, 0})},
          {"lr", Tensor::of<float>({1}, {-0.1F})}};
}

const OperatorDef kSparse = make_op("SparseStorm", {"p", "m", "s", "g", "i", "lr"}, {"p", "m", "s"}, kArgs);

TEST(SparseStorm, IsThatOfThePublicFormat) {
  const auto y = run_op_on(kSparse, table_feeds());
  EXPECT_EQ(compare(y[0], Tensor::of<float>({3, 2}, {0.99223197F, 1.9848639F, 3, 4, 4.9639597F, 5.9565916F}), 1e-6),
            "");
  EXPECT_EQ(
      compare(y[1], Tensor::of<float>({3, 2}, {0.10542883F, 0.20542883F, 0.3F, 0.4F, 0.48914233F, 0.58914238F}), 1e-6),
      "");
  EXPECT_EQ(compare(y[2], Tensor::of<float>({1}, {2.3F}), 1e-6), "");
}

TEST(SparseStorm, RepeatedRowsAreStepsOfTheirOwn) {
  Feeds feeds = table_feeds();
  feeds[4].second = Tensor::of<int64_t>({2}, {1, 1});
  const auto y = run_op_on(kSparse, feeds);
  const double rate = -0.1 / std::cbrt(0.2 + 2.3), alpha = 5 * rate * rate;
  double p = 3, m = 0.3;
  for (const double g : {0.1, 0.3}) {
    m = g + (1 - alpha) * (m - g);
    p += rate * m;
  }
  EXPECT_NEAR(y[0].data<float>()[2], p, 1e-5);
  EXPECT_NEAR(y[1].data<float>()[2], m, 1e-6);
}

TEST(SparseStorm, NothingChangesOnAWrongIndex) {
  Feeds feeds = table_feeds();
  feeds[4].second = Tensor::of<int64_t>({2}, {2, 3});
  EXPECT_NE(error_of([&] { run_op_on(kSparse, feeds); }).find("index 1 is 3, which is outside of 0 to 2"),
            std::string::npos);
}

TEST(Storm, RefusesWhatDoesNotFit) {
  const auto error = [](const Shape& sum, const Shape& grad) {
    return error_of([&] {
      run_op_on(make_op("Storm", {"p", "m", "s", "g", "lr"}, {"p", "m", "s"}),
                {{"p", normal<float>({6})},
                 {"m", normal<float>({6})},
                 {"s", normal<float>(sum)},
                 {"g", normal<float>(grad)},
                 {"lr", Tensor::of<float>({1}, {-0.1F})}});
    });
  };
  EXPECT_NE(error({2}, {6}).find("Storm: grad_sq_sum must be one value, but has shape [2]"), std::string::npos);
  EXPECT_NE(error({1}, {3}).find("Storm: grad has shape [3], but param [6]"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::storm_test
