// ReduceL2: the square root of the sum of squares over some dimensions; 0 where there is nothing to add.
//
// dX = X / Y dY, and 0 where Y is 0. It reads X and Y. With u for its gradient, the derivatives of that are u / Y dY of
// X, the sum of u X / Y of dY, and the sum of -u X / Y^2 dY of Y, all 0 where Y is 0. Squares are added in X's type, so
// norms of floats are right between about 1e-18 and 1e19.

#include "core/operator/flops.h"
#include "operators/reduce/reduce_axes.h"

namespace stepnet {
namespace {

template <class T>
void forward(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_sum(Reduction(a, call.in(0).shape()), x, y, [](auto v) { return v * v; });
  for (T& value : y) value = std::sqrt(value);
}

template <class T>
void gradient(const ReduceArgs& a, In<T> dy, In<T> x, In<T> y, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) {
    dx[i] = y[j] == 0 ? T(0) : x[i] / y[j] * dy[j];
  });
}

// The quotients by Y are gradients, which know about a Y of 0.
std::vector<Gradient> second_derivatives(Formula& f) {
  const auto gradient = [&f](Value dy, Value x) {
    return f.op("ReduceL2Gradient", {dy, x, f.x("Y")}, f.forward_args());
  };
  const auto sum_of_product = [&f](Value a, Value b) {
    return f.op("ReduceSum", {f.op("Mul", {a, b})}, f.forward_args());
  };
  Gradient dy, x, y;
  Value slope, turned;
  if (f.wants("dY") || f.wants("Y"))
    slope = gradient(f.op("ConstantFill", {f.x("dY")}, {make_arg("value", 1.0F)}), f.x("X"));
  if (f.wants("X") || f.wants("Y")) turned = gradient(f.x("dY"), f.dy("dX"));
  if (f.wants("dY")) dy = sum_of_product(f.dy("dX"), slope);
  if (f.wants("X")) x = turned;
  if (f.wants("Y")) y = f.op("Negative", {sum_of_product(turned, slope)});
  return {dy, x, y};
}

REGISTER(reduce_l2) {
  return reduction_op("ReduceL2", "the norms")
      .doc("Euclidean norms over some dimensions. The gradient of a norm of 0 is 0.")
      .flops([](const auto&, const ShapeCall& c) { return 2 * input_size(c, 0) + output_size(c, 0); })
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceL2Gradient", {f.dy("Y"), f.x("X"), f.y("Y")}, f.forward_args());
      });
}

REGISTER(reduce_l2_gradient) {
  return reduction_gradient_op("ReduceL2", true, true)
      .flops(flops_per_output(2))
      .cpu(gradient<float>, gradient<double>)
      .derivatives({"dY", "X", "Y"}, second_derivatives);
}

}  // namespace
}  // namespace stepnet
