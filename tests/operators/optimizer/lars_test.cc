// Lars, against what Caffe2 1.10 gives.
#include "tests/operators/op_test.h"

namespace stepnet::testing::lars_test {
namespace {

float rate(const Tensor& x, float lr_max, const std::vector<Argument>& args = {}) {
  const Feeds feeds = {{"X", x},
                       {"dX", Tensor::of<float>({2}, {0.5F, -0.6F})},
                       {"wd", Tensor::of<float>({1}, {0.1F})},
                       {"trust", Tensor::of<float>({1}, {0.5F})},
                       {"most", Tensor::of<float>({1}, {lr_max})}};
  const Tensor y = run_op_on(make_op("Lars", {"X", "dX", "wd", "trust", "most"}, {"rate"}, args), feeds)[0];
  EXPECT_EQ(y.str(), "float[1]");
  return y.item<float>();
}

TEST(Lars, IsThatOfThePublicFormat) {
  const Tensor x = Tensor::of<float>({2}, {1, 2});
  EXPECT_FLOAT_EQ(rate(x, 10), 0.52671224F);
  EXPECT_FLOAT_EQ(rate(x, 10, {make_arg("offset", 0.2F), make_arg("lr_min", 0.05F)}), 0.7700779F);
  EXPECT_FLOAT_EQ(rate(Tensor::of<float>({2}, {0, 0}), 10), 1);
  EXPECT_FLOAT_EQ(rate(x, 0.05F), 0.05F);
  EXPECT_FLOAT_EQ(rate(x, 10, {make_arg("lr_min", 30.0F)}), 30);
}

TEST(Lars, RefusesWhatDoesNotFit) {
  EXPECT_NE(error_of([] { rate(normal<float>({3}), 1); }).find("Lars: dX has shape [2], but X [3]"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::lars_test
