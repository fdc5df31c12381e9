// AveragedLoss: the mean, and its gradient.
#include "tests/operators/op_test.h"

namespace stepnet::testing::averaged_loss_test {
namespace {

TEST(AveragedLoss, MeanAndGradient) {
  const OperatorDef def = make_op("AveragedLoss", {"X"}, {"Y"});
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0}, Shape{3, 5}}) {
    const Tensor x = normal<double>(shape);
    double sum = 0;
    for (const double v : x.span<double>()) sum += v;
    const Tensor y = run_op_on(def, {{"X", x}})[0];
    EXPECT_EQ(compare(y, Tensor::scalar(x.size() > 0 ? sum / static_cast<double>(x.size()) : 0), 1e-14), "");
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
    const OperatorDef back = make_op("AveragedLossGradient", {"X", "dY"}, {"dX"});
    EXPECT_EQ(check_gradient(back, {{"X", x}, {"dY", normal<double>({})}}, {"dY"}), "");
  }
}

TEST(AveragedLoss, TheGivenGradientIsOneNumber) {
  const OperatorDef back = make_op("AveragedLossGradient", {"X", "dY"}, {"dX"});
  EXPECT_NE(error_of([&] {
              run_op_on(back, {{"X", normal<float>({3})}, {"dY", normal<float>({3})}});
            }).find("dY must be one number, but is [3]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::averaged_loss_test
