// The scale of the loss.
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::loss_scale_test {
namespace {

std::vector<Tensor> unscaled(float scale, const Tensor& a, const Tensor& b) {
  return run_op_on(make_op("UnscaleGradients", {"s", "a", "b"}, {"finite", "a", "b"}),
                   {{"s", Tensor::scalar(scale)}, {"a", a}, {"b", b}});
}

TEST(UnscaleGradients, DividesInPlace) {
  const Tensor a = Tensor::of<float>({2, 2}, {1, -2, 4, 0}), b = Tensor::of<double>({1}, {3});
  const auto results = unscaled(4, a, b);
  EXPECT_EQ(results[0].str(), "bool[1]");
  EXPECT_TRUE(results[0].item<int>());
  EXPECT_EQ(compare(results[1], Tensor::of<float>({2, 2}, {0.25, -0.5, 1, 0}), 0), "");
  EXPECT_EQ(compare(results[2], Tensor::of<double>({1}, {0.75}), 0), "");
  EXPECT_TRUE(unscaled(1, normal<float>({0, 3}), b)[0].item<int>());
}

TEST(UnscaleGradients, SaysWhereverAnElementIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()})
    for (const int64_t place : {0, 77777, 99999}) {
      Tensor a = normal<float>({100000});
      a.data<float>()[place] = bad;
      const Tensor b = normal<float>({2});
      EXPECT_FALSE(unscaled(2, a, b)[0].item<int>());
      EXPECT_FALSE(unscaled(2, b, a)[0].item<int>());
      a.data<float>()[place] = 1;
      EXPECT_TRUE(unscaled(2, a, b)[0].item<int>());
    }
  // The scaled gradient is looked at, not the result.
  EXPECT_FALSE(unscaled(kInf, Tensor::of<float>({1}, {kInf}), Tensor::of<float>({1}, {1}))[0].item<int>());
}

TEST(UnscaleGradients, RefusesWhatItCannotDivide) {
  const Tensor a = Tensor::of<float>({1}, {1});
  EXPECT_NE(error_of([&] { unscaled(2, a, Tensor::of<int32_t>({1}, {1})); }).find("gradient 1 must be floating"),
            std::string::npos);
  const OperatorDef few = make_op("UnscaleGradients", {"s", "a", "b"}, {"finite", "a"});
  EXPECT_NE(error_of([&] {
              run_op_on(few, {{"s", a}, {"a", a}, {"b", a}});
            }).find("2 gradients need 2 outputs"),
            std::string::npos);
}

struct Scale {
  float scale;
  int good_steps;
  bool operator==(const Scale&) const = default;
};

Scale updated(Scale now, bool finite, const std::vector<Argument>& args = {}) {
  const auto results = run_op_on(make_op("UpdateLossScale", {"s", "n", "f"}, {"s", "n"}, args),
                                 {{"s", Tensor::scalar(now.scale)},
                                  {"n", Tensor::scalar(int32_t{now.good_steps})},
                                  {"f", Tensor::of<bool>({1}, {finite})}});
  return {results[0].item<float>(), results[1].item<int>()};
}

// As torch.amp.GradScaler does with its defaults.
TEST(UpdateLossScale, HalvesAfterAnOverflowAndDoublesAfterManyGoodSteps) {
  EXPECT_EQ(updated({65536, 0}, true), (Scale{65536, 1}));
  EXPECT_EQ(updated({65536, 1998}, true), (Scale{65536, 1999}));
  EXPECT_EQ(updated({65536, 1999}, true), (Scale{131072, 0}));
  EXPECT_EQ(updated({65536, 1999}, false), (Scale{32768, 0}));
  EXPECT_EQ(updated({0x1p127F, 1999}, true), (Scale{0x1p127F, 0}));  // twice that is infinite
  EXPECT_EQ(updated({8, 1}, true, {make_arg("growth_interval", 2), make_arg("growth_factor", 3.0F)}), (Scale{24, 0}));
  EXPECT_EQ(updated({8, 1}, false, {make_arg("backoff_factor", 0.25F)}), (Scale{2, 0}));
}

}  // namespace
}  // namespace stepnet::testing::loss_scale_test
