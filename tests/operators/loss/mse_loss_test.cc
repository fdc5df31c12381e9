// MSELoss: the mean of squared differences, and its gradients.
#include "tests/operators/op_test.h"

namespace stepnet::testing::mse_loss_test {
namespace {

OperatorDef loss() { return make_op("MSELoss", {"X", "Y"}, {"loss"}); }

TEST(MseLoss, MeanOfSquaredDifferences) {
  const Tensor x = normal<double>({4, 5}, 1), y = normal<double>({4, 5}, 2);
  double sum = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const double d = x.data<double>()[i] - y.data<double>()[i];
    sum += d * d;
  }
  EXPECT_EQ(compare(run_op_on(loss(), {{"X", x}, {"Y", y}})[0], Tensor::scalar(sum / 20), 1e-14), "");
  const Feeds none = {{"X", normal<float>({0, 5})}, {"Y", normal<float>({0, 5})}};
  EXPECT_EQ(compare(run_op_on(loss(), none)[0], Tensor::scalar(0.0F), 0), "");
}

TEST(MseLoss, Gradients) {
  for (const Shape& shape : {Shape{3, 4}, Shape{1}, Shape{}, Shape{0, 2}})
    EXPECT_EQ(check_gradient(loss(), {{"X", normal<double>(shape, 1)}, {"Y", normal<double>(shape, 2)}}, {"X", "Y"}),
              "")
        << shape.str();
}

TEST(MseLoss, ShapesMustBeEqual) {
  const std::string text = error_of([] {
    run_op_on(loss(), {{"X", normal<float>({2, 3})}, {"Y", normal<float>({3})}});
  });
  EXPECT_NE(text.find("X is [2, 3], but Y [3]"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::mse_loss_test
