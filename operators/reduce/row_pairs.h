// What operators on pairs of rows share: X and Y have one shape, [N, ...], and Z is [N], a number for each pair of
// rows. One dimension is N rows of one element, and a scalar is one row. A gradient operator has the inputs X, Y and
// dZ. A distance may have X - Y as its second output, which its gradients then read in place of X and Y. Threads: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "core/compute/threads.h"
#include "operators/loops/axis_rows.h"

namespace stepnet {

inline AxisRows pair_rows(const Shape& x) {
  return x.rank() == 0 ? AxisRows{1, 1} : AxisRows{x[0], x.size_between(1, x.rank())};
}

inline void check_pair(const ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "X is {}, but Y {}", c.shape(0), c.shape(1));
}

inline void infer_pairs(const NoArgs&, ShapeCall& c) {
  check_pair(c);
  if (c.known(0)) c.set(0, c.dtype(0), Shape{pair_rows(c.shape(0)).count});
  c.set_like(1, 0);
}

inline void infer_pair_gradients(const NoArgs&, ShapeCall& c) {
  check_pair(c);
  if (c.known(0) && c.known(2)) {
    const int64_t rows = pair_rows(c.shape(0)).count;
    require(c.shape(2) == Shape{rows}, "dZ is {}, but X {} has {} rows", c.shape(2), c.shape(0), rows);
  }
  c.set_like(0, 0);
  c.set_like(1, 0);
}

inline int pairs_by_row(const NoArgs&, const ShapeCall& c) { return c.known(0) && c.shape(0).rank() > 0 ? 1 : 0; }

// Calls fn(n, first) for each row n, whose first element is at `first`. fn must not throw.
template <class Fn>
void each_row(const AxisRows& rows, Fn fn) {
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) fn(n, n * rows.size);
  };
  parallel_for(rows.count, 5.0 + static_cast<double>(rows.size), range);
}

// In double, in order.
template <class T>
double row_dot(const T* x, const T* y, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

inline std::vector<Gradient> pair_derivatives(Formula& f, const std::string& gradient) {
  const std::vector<Value> d = f.ops(gradient, {f.x("X"), f.x("Y"), f.dy("Z")}, {}, {f.wants("X"), f.wants("Y")});
  return {d[0], d[1]};
}

// For a gradient whose dY is -dX: the gradient of dX less that of dY, of which either may be missing.
inline Value gradient_of_difference(Formula& f) {
  const Value u = f.dy("dX"), v = f.dy("dY");
  if (!v.defined()) return u;
  return u.defined() ? f.op("Sub", {u, v}) : f.op("Negative", {v});
}

inline OpBuilder<>& declare_pair(OpBuilder<>& b, const std::string& result) {
  return b.shape(infer_pairs)
      .rowwise(pairs_by_row)
      .example({"X=3,4", "Y=3,4"})
      .example({"X=2,2,2", "Y=2,2,2"})
      .example({"X=3", "Y=3"})
      .example({"X=0,2", "Y=0,2"})
      .input("X", "[N, ...]")
      .input("Y", "like X")
      .output("Z", "[N], " + result);
}

// The operator `type`, with all but its doc and kernels.
inline OpBuilder<> pair_op(const std::string& type, const std::string& result) {
  OpBuilder<> b(type);
  declare_pair(b, result).derivatives({"X", "Y"},
                                      [type](Formula& f) { return pair_derivatives(f, type + "Gradient"); });
  return b;
}

// The gradients of a distance that has X - Y, of which it is a function: `slope` makes the derivative of a row's sum
// with respect to each difference.
template <class Slope>
std::vector<Gradient> distance_derivatives(Formula& f, const std::string& gradient, Slope slope) {
  const Value difference = f.y("difference");
  if (!difference.defined()) return pair_derivatives(f, gradient);
  Value of_difference = f.dy("difference");
  if (f.has_dy("Z")) {
    const Value each = slope(f, difference);
    const Value through = f.ops("DotProductGradient", {each, each, f.dy("Z")}, {}, {true, false})[0];
    of_difference = of_difference.defined() ? f.op("Sum", {through, of_difference}) : through;
  }
  Gradient x, y;
  if (f.wants("X")) x = of_difference;
  if (f.wants("Y")) y = f.op("Negative", {of_difference});
  return {x, y};
}

// A distance, with all but its doc and kernels.
template <class Slope>
OpBuilder<> distance_op(const std::string& type, const std::string& result, Slope slope) {
  OpBuilder<> b(type);
  declare_pair(b, result)
      .output("difference", "X - Y; if it is there, the gradients read it and neither X nor Y")
      .optional()
      .derivatives({"X", "Y"}, [=](Formula& f) { return distance_derivatives(f, type + "Gradient", slope); });
  return b;
}

// Its gradient operator, with all but its kernels and derivatives. If `crossed`, dX is computed from Y and dZ alone,
// and dY from X and dZ.
inline OpBuilder<> pair_gradient_op(const std::string& type, bool crossed = false) {
  OpBuilder<> b(type + "Gradient");
  b.doc("Gradients of " + type + ". An output that is not wanted is left out or \"\".")
      .input("X", type + "'s X")
      .input("Y", type + "'s Y")
      .input("dZ", "gradient of its Z, [N]")
      .example({"X=3,4", "Y=3,4", "dZ=3"})
      .example({"X=0,2", "Y=0,2", "dZ=0"})
      .output("dX", "like X")
      .optional();
  if (crossed) b.uses({"Y", "dZ"});
  b.output("dY", "like X").optional();
  if (crossed) b.uses({"X", "dZ"});
  b.shape(infer_pair_gradients).rowwise(pairs_by_row);
  return b;
}

}  // namespace stepnet
