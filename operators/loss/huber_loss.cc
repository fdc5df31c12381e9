// HuberLoss and SmoothL1Loss: the mean over all elements of h(X - Y), a scalar; 0 if there are none. With a bound b,
// HuberLoss's delta, h(d) = d^2 / 2 where |d| < b, and b (|d| - b / 2) elsewhere. SmoothL1Loss is that divided by its
// bound, beta. Both are defined as in PyTorch (huber_loss, smooth_l1_loss), but for a bound of 0, which is refused.
//
// dX = clip(X - Y, -b, b) dloss / n, for SmoothL1Loss divided by b, and dY = -dX. Both read X and Y. They are formulas
// over other operators, and so have derivatives of any order.
#include "operators/loss/huber_loss.h"

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_huber_loss {
namespace {

template <class T, bool kDivided>
void forward(const HuberArgs& a, In<T> x, In<T> y, Out<T> loss) {
  const auto bound = static_cast<double>(a.bound);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += huber(static_cast<double>(x[i]) - static_cast<double>(y[i]), bound);
  if (kDivided) sum /= bound;
  loss[0] = x.empty() ? T(0) : static_cast<T>(sum / static_cast<double>(x.size()));
}

void infer(const HuberArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but Y {}", c.shape(0), c.shape(1));
  if (c.known(0)) c.set(0, c.dtype(0), Shape{});
}

// The gradient of AveragedLoss is dloss / n everywhere.
std::vector<Gradient> derivatives(Formula& f, bool divided) {
  const float bound = f.args<HuberArgs>().bound;
  const Value share = f.op("AveragedLossGradient", {f.x("X"), f.dy("loss")});
  const Value clipped =
      f.op("Clip", {f.op("Sub", {f.x("X"), f.x("Y")})}, {make_arg("min", -bound), make_arg("max", bound)});
  Value slope = f.op("Mul", {clipped, share});
  if (divided && bound != 1) slope = f.op("Div", {slope, composing::fill(f, f.x("X"), static_cast<double>(bound))});
  Gradient x, y;
  if (f.wants("X")) x = slope;
  if (f.wants("Y")) y = f.op("Negative", {slope});
  return {x, y};
}

OpBuilder<HuberArgs> loss(const char* type, const char* bound, const char* doc) {
  OpBuilder<HuberArgs> b(type);
  b.own()
      .doc(doc)
      .arg(bound, &HuberArgs::bound, 1.0F, "the difference from which on the loss grows by a line; more than 0",
           greater_than(0))
      .input("X", "any shape")
      .input("Y", "like X")
      .output("loss", "a scalar")
      .shape(infer)
      .example({"X=2,3", "Y=2,3"})
      .example({"X=3,4,-3..3", "Y=3,4"}, {std::string(bound) + "=0.5"})
      .example({"X=0,2", "Y=0,2"})
      .precision(Precision::float32);
  return b;
}

REGISTER(huber_loss) {
  return loss("HuberLoss", "delta",
              "The mean of a function of the differences: half the square up to delta, and a line from there on.")
      .flops([](const auto&, const ShapeCall& c) { return 5 * input_size(c, 0) + 1; })
      .cpu(forward<float, false>, forward<double, false>)
      .derivatives({"X", "Y"}, [](Formula& f) { return derivatives(f, false); });
}

REGISTER(smooth_l1_loss) {
  return loss("SmoothL1Loss", "beta",
              "The mean of the differences' sizes, with a parabola in place of the edge at 0: HuberLoss divided by "
              "beta.")
      .flops([](const auto&, const ShapeCall& c) { return 5 * input_size(c, 0) + 2; })
      .cpu(forward<float, true>, forward<double, true>)
      .derivatives({"X", "Y"}, [](Formula& f) { return derivatives(f, true); });
}

}  // namespace
}  // namespace stepnet::cpu_huber_loss
