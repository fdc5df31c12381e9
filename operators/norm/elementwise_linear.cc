// ElementwiseLinear: Y = X w + b, where X is flattened before `axis` and w and b have an element for each column.
//
// dX = dY w, dw = the sum of dY X over rows, db = the sum of dY over rows. Each reads only the values in its formula.

#include "operators/norm/elementwise_linear.h"

#include <algorithm>
#include <functional>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/sum_rows.h"

namespace stepnet::cpu_elementwise_linear {
namespace {

void check_parameter(const LinearArgs& a, const ShapeCall& c, int i, const char* name, const Shape& x) {
  if (!c.known(i)) return;
  const int64_t size = rows_of(a, x).size;
  require(c.shape(i) == Shape{size}, "{} must be [{}], as X {} has rows of {} values from axis {} on, but is {}", name,
          size, x, size, a.axis, c.shape(i));
}

void infer(const LinearArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  check_parameter(a, c, 1, "w", c.shape(0));
  check_parameter(a, c, 2, "b", c.shape(0));
  c.set_like(0, 0);
}

void infer_gradient(const LinearArgs& a, ShapeCall& c) {
  if (!c.known(1)) return;
  const Shape& x = c.shape(1);
  if (c.known(0)) require(c.shape(0) == x, "dY is {}, but X {}", c.shape(0), x);
  check_parameter(a, c, 2, "w", x);
  c.set_like(0, 1);
  for (const int i : {1, 2}) c.set(i, c.dtype(1), Shape{rows_of(a, x).size});
}

// fn(row, the row's first element) for all rows, in parallel.
template <class Fn>
void each_row(AxisRows rows, Fn fn) {
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) fn(r * rows.size);
  };
  parallel_for(rows.count, 0.3 * static_cast<double>(rows.size), std::ref(range));
}

template <class T>
void forward(const LinearArgs& a, In<T> x, In<T> w, In<T> b, Out<T> y, Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  each_row(rows, [&, size = rows.size](int64_t at) {
    const T *from = x.data() + at, *factor = w.data(), *more = b.data();
    T* to = y.data() + at;
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) to[j] = from[j] * factor[j] + more[j];
  });
}

// sums, [N], is the sum of dy x over the rows; or is added to. Columns are shared out among threads, so that each sum
// has one order.
template <class T>
void sum_products(AxisRows rows, const T* dy, const T* x, T* sums, bool accumulate) {
  auto columns = [=](int64_t begin, int64_t end) {
    if (!accumulate) std::fill(sums + begin, sums + end, T(0));
    for (int64_t at = 0; at < rows.count * rows.size; at += rows.size) {
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) sums[j] += dy[at + j] * x[at + j];
    }
  };
  parallel_for(rows.size, 0.4 * static_cast<double>(rows.count), std::ref(columns));
}

template <class T>
void gradient(const LinearArgs& a, In<T> dy, In<T> x, In<T> w, Out<T> dx, Out<T> dw, Out<T> db, Call& call) {
  const AxisRows rows = rows_of(a, call.in(1).shape());
  if (call.wants(0))
    each_row(rows, [&, size = rows.size](int64_t at) {
      const T *from = dy.data() + at, *factor = w.data();
      T* to = dx.data() + at;
#pragma omp simd
      for (int64_t j = 0; j < size; ++j) to[j] = from[j] * factor[j];
    });
  if (rows.size == 0) return;
  if (call.wants(1)) sum_products(rows, dy.data(), x.data(), dw.data(), call.accumulates(1));
  if (call.wants(2)) sum_rows(rows.count, rows.size, dy.data(), db.data(), call.accumulates(2));
}

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<bool> wanted = {f.wants("X"), f.wants("w"), f.wants("b")};
  const std::vector<Value> d =
      f.ops("ElementwiseLinearGradient", {f.dy("Y"), f.x("X"), f.x("w")}, f.forward_args(), wanted);
  return {d[0], d[1], d[2]};
}

// The first or the second output of the gradient operator for other tensors.
constexpr int kX = 0, kW = 1;
Value gradient_of(Formula& f, int which, Value dy, Value x, Value w) {
  return f.ops("ElementwiseLinearGradient", {dy, x, w}, f.forward_args(), {which == kX, which == kW, false})[which];
}

// Of the gradient operator's dY, from the outer gradients u, v and s of dX, dw and db: u w + X v + s.
Gradient second_by_dy(Formula& f) {
  std::vector<Value> terms;
  const bool has_v = f.has_dy("dw"), has_s = f.has_dy("db");
  if (f.has_dy("dX")) terms.push_back(gradient_of(f, kX, f.dy("dX"), f.x("X"), f.x("w")));
  if (has_v && !has_s) terms.push_back(gradient_of(f, kX, f.x("X"), f.x("X"), f.dy("dw")));
  if (has_s) {
    const Value x = has_v ? f.x("X") : f.op("ZerosLike", {f.x("dY")});
    const Value w = has_v ? f.dy("dw") : f.op("ZerosLike", {f.dy("db")});
    terms.push_back(f.op("ElementwiseLinear", {x, w, f.dy("db")}, f.forward_args()));
  }
  return terms.size() == 1 ? terms[0] : f.op("Sum", terms);
}

// Of X it is dY v.
Gradient second_by_x(Formula& f) {
  if (!f.has_dy("dw")) return Gradient::none();
  return gradient_of(f, kX, f.x("dY"), f.x("X"), f.dy("dw"));
}

// Of w it is the sum of dY u over rows.
Gradient second_by_w(Formula& f) {
  if (!f.has_dy("dX")) return Gradient::none();
  return gradient_of(f, kW, f.x("dY"), f.dy("dX"), f.x("w"));
}

REGISTER(elementwise_linear) {
  return op<LinearArgs>("ElementwiseLinear")
      .doc("A factor and an addend for each column: Y = X w + b.")
      .arg("axis", &LinearArgs::axis, 1, "X is flattened to a matrix whose rows are the dimensions before this one")
      .input("X", "[M, N] after flattening")
      .input("w", "[N]")
      .input("b", "[N]")
      .output("Y", "X w + b, like X", like("X"))
      .in_place("X", "Y", {"w"})
      .shape(infer)
      .rowwise(leading_rows<LinearArgs>)
      .example({"X=2,3", "w=3", "b=3"})
      .example({"X=2,3,2", "w=2", "b=2"}, {"axis=2"})
      .example({"X=2,3", "w=6", "b=6"}, {"axis=0"})
      .example({"X=0,3", "w=3", "b=3"})
      .flops(flops_per_output(2))
      .cpu(forward<float>, forward<double>)
      .derivatives({"X", "w", "b"}, derivatives);
}

REGISTER(elementwise_linear_gradient) {
  return op<LinearArgs>("ElementwiseLinearGradient")
      .doc("Gradients of ElementwiseLinear.")
      .arg("axis", &LinearArgs::axis, 1, "as ElementwiseLinear's")
      .input("dY", "gradient of Y")
      .input("X", "ElementwiseLinear's X; its values are read for dw only")
      .input("w", "ElementwiseLinear's w; its values are read for dX only")
      .output("dX", "dY w")
      .optional()
      .uses({"dY", "w"})
      .output("dw", "the sum of dY X over rows")
      .optional()
      .uses({"dY", "X"})
      .accumulates()
      .output("db", "the sum of dY over rows")
      .optional()
      .uses({"dY"})
      .accumulates()
      .shape(infer_gradient)
      .rowwise(leading_rows<LinearArgs, 1>)
      .sums_rows()
      .flops([](const auto&, const ShapeCall& c) {
        return input_size(c, 0) * (int{c.wants(0)} + 2 * int{c.wants(1)} + int{c.wants(2)});
      })
      .cpu(gradient<float>, gradient<double>)
      .derivative("dY", second_by_dy)
      .derivative("X", second_by_x)
      .derivative("w", second_by_w);
}

}  // namespace
}  // namespace stepnet::cpu_elementwise_linear
