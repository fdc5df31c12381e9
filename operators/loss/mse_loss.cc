// MSELoss: the mean of (X - Y)^2 over all elements, a scalar; 0 if there are none. The public format has no such
// operator; there it is twice SquaredL2Distance, averaged and divided by the length of a row.
//
// dX = 2 (X - Y) dloss / n and dY = -dX. Both read X and Y. They are formulas over other operators, and so have
// derivatives of any order.

#include "core/operator/flops.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_mse_loss {
namespace {

template <class T>
void forward(In<T> x, In<T> y, Out<T> loss) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    sum += difference * difference;
  }
  loss[0] = x.empty() ? T(0) : static_cast<T>(sum / static_cast<double>(x.size()));
}

void infer(const NoArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but Y {}", c.shape(0), c.shape(1));
  if (c.known(0)) c.set(0, c.dtype(0), Shape{});
}

// The gradient of AveragedLoss is dloss / n everywhere.
std::vector<Gradient> derivatives(Formula& f) {
  const Value share = f.op("AveragedLossGradient", {f.x("X"), f.dy("loss")});
  const Value half = f.op("Mul", {f.op("Sub", {f.x("X"), f.x("Y")}), share});
  const Value slope = f.op("Add", {half, half});
  Gradient x, y;
  if (f.wants("X")) x = slope;
  if (f.wants("Y")) y = f.op("Negative", {slope});
  return {x, y};
}

REGISTER(mse_loss) {
  return op("MSELoss")
      .own()
      .doc("The mean of the squared differences of all elements.")
      .input("X", "any shape")
      .input("Y", "like X")
      .output("loss", "a scalar")
      .shape(infer)
      .example({"X=2,3", "Y=2,3"})
      .example({"X=1", "Y=1"})
      .example({"X=0,2", "Y=0,2"})
      .flops([](const auto&, const ShapeCall& c) { return 3 * input_size(c, 0) + 1; })
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivatives({"X", "Y"}, derivatives);
}

}  // namespace
}  // namespace stepnet::cpu_mse_loss
