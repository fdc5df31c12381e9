// AveragedLoss: the mean of all elements, a scalar. dX = dY / n everywhere; of X only the shape is read.

#include <algorithm>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_averaged_loss {
namespace {

template <class T>
void forward(In<T> x, Out<T> y) {
  y[0] = x.empty() ? T(0) : static_cast<T>(vec_sum(x) / static_cast<double>(x.size()));
}

template <class T>
void gradient(In<T>, In<T> dy, Out<T> dx) {
  if (!dx.empty()) std::fill(dx.begin(), dx.end(), dy[0] / static_cast<T>(dx.size()));
}

void infer(const NoArgs&, ShapeCall& c) {
  if (c.known(0)) c.set(0, c.dtype(0), Shape{});
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  if (c.known(1)) require(c.shape(1).size() == 1, "dY must be one number, but is {}", c.shape(1));
  c.set_like(0, 0);
}

REGISTER(averaged_loss) {
  return op("AveragedLoss")
      .doc("The mean of all elements; 0 if there are none.")
      .input("X", "any shape")
      .output("Y", "a scalar")
      .shape(infer)
      .example({"X=2,3"})
      .example({"X=0,2"})
      .flops([](const auto&, const ShapeCall& c) { return input_size(c, 0) + 1; })
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("AveragedLossGradient", {f.x("X"), f.dy("Y")});
      });
}

REGISTER(averaged_loss_gradient) {
  return op("AveragedLossGradient")
      .doc("Gradient of AveragedLoss: dY / n everywhere.")
      .input("X", "AveragedLoss's input")
      .shape_only()
      .input("dY", "one number")
      .output("dX", "like X")
      .shape(infer_gradient)
      .flops([](const auto&, const ShapeCall&) { return 1; })
      .cpu(gradient<float>, gradient<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("dY", [](Formula& f) { return f.op("AveragedLoss", {f.dy("dX")}); });
}

}  // namespace
}  // namespace stepnet::cpu_averaged_loss
