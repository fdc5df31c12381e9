// Normalize: Y = X / max(norm, 1e-12), where norm is the Euclidean norm of X along an axis.
//
// dX = (dY - Y sum(dY Y)) / norm along the axis, and dY / 1e-12 where the norm is no greater than that. It reads X.
// That is the product of a symmetric matrix with dY, so its derivative of dY is itself; that of X follows from the
// formula.

#include "operators/norm/normalize.h"

#include <algorithm>
#include <cmath>

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/loops/one_axis.h"

namespace stepnet::cpu_normalize {
namespace {

template <class T>
double dot(const T* x, const T* y, const OneAxis& axis) {
  double sum = 0;
  for (int64_t k = 0; k < axis.size; ++k)
    sum += static_cast<double>(x[k * axis.inner]) * static_cast<double>(y[k * axis.inner]);
  return sum;
}

template <class T>
void forward(const NormalizeArgs& a, In<T> x, Out<T> y, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  axis.each_line(1.5, [&](int64_t, int64_t first) {
    const T* from = x.data() + first;
    const double norm = std::max(std::sqrt(dot(from, from, axis)), kLeastNorm);
    for (int64_t k = 0; k < axis.size; ++k)
      y[first + k * axis.inner] = static_cast<T>(static_cast<double>(from[k * axis.inner]) / norm);
  });
}

template <class T>
void gradient(const NormalizeArgs& a, In<T> x, In<T> dy, Out<T> dx, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  axis.each_line(2.5, [&](int64_t, int64_t first) {
    const T *from = x.data() + first, *given = dy.data() + first;
    const double norm = std::sqrt(dot(from, from, axis));
    const double along = norm > kLeastNorm ? dot(from, given, axis) / (norm * norm) : 0;
    for (int64_t at = 0; at < axis.size * axis.inner; at += axis.inner)
      dx[first + at] = static_cast<T>((static_cast<double>(given[at]) - along * static_cast<double>(from[at])) /
                                      std::max(norm, kLeastNorm));
  });
}

template <int kEach, int kPerLine>
double flops_of_lines(const NormalizeArgs& a, const ShapeCall& c) {
  return c.known(0) ? kEach * input_size(c, 0) + kPerLine * static_cast<double>(one_axis(a, c.shape(0)).lines()) : 0;
}

void infer(const NormalizeArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  canonical_axis(a.axis, c.shape(0).rank());
  c.set_like(0, 0);
}

void infer_gradient(const NormalizeArgs& a, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but dY {}", c.shape(0), c.shape(1));
  infer(a, c);
}

std::vector<Argument> axes_of(const Formula& f) {
  return {make_arg("axes", std::vector<int64_t>{f.args<NormalizeArgs>().axis})};
}

std::vector<Value> body(Formula& f) {
  using composing::at_least, composing::laid_over, composing::like_first, composing::map;
  const Value x = f.x("X");
  const Value square = f.op("ReduceSum", {map(f, "Sqr", x)}, axes_of(f));
  return {like_first(f, "Div", x, map(f, "Sqrt", at_least(f, square, kLeastNorm * kLeastNorm)), laid_over())};
}

std::vector<Value> gradient_body(Formula& f) {
  using composing::div, composing::fill, composing::laid_over, composing::like_first, composing::map, composing::mul,
      composing::sub, composing::where, composing::zeros;
  const std::vector<Argument> axes = axes_of(f);
  const Value x = f.x("X"), dy = f.x("dY");
  const Value square = f.op("ReduceSum", {map(f, "Sqr", x)}, axes);
  const auto like_square = [&](Value v) { return f.same_shape(v, square); };
  const Value least = fill(f, square, kLeastNorm * kLeastNorm), long_enough = f.op("GT", {square, least});
  const Value bounded = where(f, long_enough, square, least);
  const Value dot = like_square(f.op("ReduceSum", {mul(f, x, dy)}, axes));
  const Value along = where(f, long_enough, div(f, dot, bounded), zeros(f, square));
  const Value across = sub(f, dy, like_first(f, "Mul", x, along, laid_over()));
  return {like_first(f, "Div", across, map(f, "Sqrt", bounded), laid_over())};
}

constexpr const char* kAxis = "the dimension that lines run along, a negative one counted from the end";

// Two sums for each line.
std::vector<int64_t> gpu_workspace(const NormalizeArgs& a, const Call& c) {
  constexpr int64_t kPair = 2 * sizeof(double);
  return {kPair * one_axis(a, c.in(0).shape()).lines()};
}
REGISTER(normalize) {
  return op<NormalizeArgs>("Normalize")
      .doc("Divides each line along an axis by its Euclidean norm, if that is not below 1e-12.")
      .arg("axis", &NormalizeArgs::axis, -1, kAxis)
      .input("X", "any shape of at least one dimension")
      .output("Y", "like X, with norms of 1")
      .gpu_workspace(gpu_workspace)
      .shape(infer)
      .rowwise(rows_before_axis<NormalizeArgs>)
      .example({"X=3,4"})
      .example({"X=2,3,2"}, {"axis=1"})
      .example({"X=3,1"}, {"axis=0"})
      .example({"X=2,0"})
      .flops(flops_of_lines<3, 1>)
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("X",
                  [](Formula& f) {
                    return f.op("NormalizeGradient", {f.x("X"), f.dy("Y")}, f.forward_args());
                  })
      .composed(body);
}

REGISTER(normalize_gradient) {
  return op<NormalizeArgs>("NormalizeGradient")
      .doc("Gradient of Normalize.")
      .arg("axis", &NormalizeArgs::axis, -1, kAxis)
      .input("X", "Normalize's X")
      .input("dY", "gradient of its Y")
      .output("dX", "like X")
      .in_place("dY", "dX", {"X"})
      .gpu_workspace(gpu_workspace)
      .shape(infer_gradient)
      .rowwise(rows_before_axis<NormalizeArgs>)
      .flops(flops_of_lines<7, 2>)
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body)
      .derivative("dY", [](Formula& f) {
        return f.op("NormalizeGradient", {f.x("X"), f.dy("dX")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_normalize
