// HuberLoss and SmoothL1Loss: their formulas on either side of the bound, and their gradients.
#include <cmath>

#include "tests/operators/op_test.h"

namespace stepnet::testing::huber_loss_test {
namespace {

OperatorDef loss(const std::string& type, float bound) {
  OperatorDef def = make_op(type, {"X", "Y"}, {"loss"});
  *def.add_arg() = make_arg(type == "HuberLoss" ? "delta" : "beta", bound);
  return def;
}

TEST(HuberLoss, MeanOfTheirFormulas) {
  const Tensor x = uniform<double>({4, 5}, -3, 3), y = normal<double>({4, 5}, 2);
  for (const float bound : {0.5F, 1.0F, 2.5F}) {
    double sum = 0;
    for (int64_t i = 0; i < 20; ++i) {
      const double d = std::abs(x.data<double>()[i] - y.data<double>()[i]);
      sum += d < bound ? d * d / 2 : bound * d - bound * bound / 2;
    }
    const Feeds feeds = {{"X", x}, {"Y", y}};
    EXPECT_EQ(compare(run_op_on(loss("HuberLoss", bound), feeds)[0], Tensor::scalar(sum / 20), 1e-14), "");
    EXPECT_EQ(compare(run_op_on(loss("SmoothL1Loss", bound), feeds)[0], Tensor::scalar(sum / 20 / bound), 1e-14), "");
  }
  const Feeds none = {{"X", normal<float>({0, 5})}, {"Y", normal<float>({0, 5})}};
  EXPECT_EQ(compare(run_op_on(loss("HuberLoss", 1), none)[0], Tensor::scalar(0.0F), 0), "");
}

TEST(HuberLoss, Gradients) {
  for (const char* type : {"HuberLoss", "SmoothL1Loss"})
    for (const Shape& shape : {Shape{3, 4}, Shape{1}, Shape{}, Shape{0, 2}})
      EXPECT_EQ(check_gradient(loss(type, 0.7F), {{"X", normal<double>(shape, 1)}, {"Y", normal<double>(shape, 2)}},
                               {"X", "Y"}),
                "")
          << type << shape.str();
}

TEST(HuberLoss, MistakesAreRefused) {
  const auto error = [](float bound, const Shape& y) {
    return error_of([&] {
      run_op_on(loss("HuberLoss", bound), {{"X", normal<float>({2, 3})}, {"Y", normal<float>(y)}});
    });
  };
  EXPECT_NE(error(1, {3}).find("X is [2, 3], but Y [3]"), std::string::npos);
  EXPECT_NE(error(0, {2, 3}).find("must be greater than 0, but is 0"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::huber_loss_test
