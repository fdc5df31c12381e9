// FC: Y = X W^T + b, with X flattened to [M, K] before `axis` and W to [N, K] before `axis_w`.
//
// dX = dY W, dW = dY^T X, db = the sum of dY over its M rows. Each reads only the values in its formula: what needs
// dX alone need not keep X.

#include <algorithm>

#include "core/matmul.h"
#include "core/operator.h"
#include "operators/sum_rows.h"

namespace stepnet {
namespace {

struct FcArgs {
  int32_t axis = 1;
  int32_t axis_w = 1;
};

struct Sizes {
  int64_t m = 0, n = 0, k = 0;
};

Sizes sizes_of(const FcArgs& a, const Shape& x, const Shape& w) {
  const int axis = canonical_axis(a.axis, x.rank());
  const int axis_w = canonical_axis(a.axis_w, w.rank());
  return {x.size_between(0, axis), w.size_between(0, axis_w), w.size_between(axis_w, w.rank())};
}

// Also checks that X and W fit.
Shape output_shape(const FcArgs& a, const Shape& x, const Shape& w) {
  const int axis = canonical_axis(a.axis, x.rank());
  const Sizes s = sizes_of(a, x, w);
  const int64_t inner = x.size_between(axis, x.rank());
  require(inner == s.k, "X {} has rows of {} values from axis {} on, but W {} takes rows of {}", x, inner, axis, w,
          s.k);
  Shape y(x.dims().first(axis));
  y.push_back(s.n);
  return y;
}

void infer(const FcArgs& a, ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return;
  const Shape y = output_shape(a, c.shape(0), c.shape(1));
  const int64_t n = y[y.rank() - 1];
  if (c.known(2))
    require(c.shape(2) == Shape{n}, "b is {}, but W {} gives {} outputs, so b must be [{}]", c.shape(2), c.shape(1), n,
            n);
  c.set(0, c.dtype(0), y);
}

void infer_gradient(const FcArgs& a, ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return;
  const Shape y = output_shape(a, c.shape(0), c.shape(1));
  if (c.known(2))
    require(c.shape(2).size() == y.size(), "dY is {}, but X {} and W {} give an output of {}", c.shape(2), c.shape(0),
            c.shape(1), y);
  c.set_like(0, 1);
  c.set(1, c.dtype(0), Shape{y[y.rank() - 1]});
  c.set_like(2, 0);
}

template <class T>
void forward(const FcArgs& a, In<T> x, In<T> w, In<T> b, Out<T> y, Call& call) {
  const Sizes s = sizes_of(a, call.in(0).shape(), call.in(1).shape());
  matmul(false, true, s.m, s.n, s.k, x.data(), w.data(), y.data(), call.accumulates(0), call.run.packs, b.data());
}

template <class T>
void gradient(const FcArgs& a, In<T> x, In<T> w, In<T> dy, Out<T> dw, Out<T> db, Out<T> dx, Call& call) {
  const Sizes s = sizes_of(a, call.in(0).shape(), call.in(1).shape());
  if (call.wants(0)) matmul(true, false, s.n, s.k, s.m, dy.data(), x.data(), dw.data(), call.accumulates(0));
  if (call.wants(1)) sum_rows(s.m, s.n, dy.data(), db.data(), call.accumulates(1));
  if (call.wants(2))
    matmul(false, false, s.m, s.k, s.n, dy.data(), w.data(), dx.data(), call.accumulates(2), call.run.packs);
}

double product_flops(const FcArgs& a, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return 0;
  const Sizes s = sizes_of(a, c.shape(0), c.shape(1));
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

double gradient_flops(const FcArgs& a, const ShapeCall& c) {
  const double rows = c.known(2) && c.wants(1) ? static_cast<double>(c.shape(2).size()) : 0;
  return product_flops(a, c) * (int{c.wants(0)} + int{c.wants(2)}) + rows;
}

int leading_rows(const FcArgs& a, const ShapeCall& c) {
  return c.known(0) ? canonical_axis(a.axis, c.shape(0).rank()) : std::max(a.axis, 0);
}

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<bool> wanted = {f.wants("W"), f.wants("b"), f.wants("X")};
  const std::vector<Value> d = f.ops("FCGradient", {f.x("X"), f.x("W"), f.dy("Y")}, f.forward_args(), wanted);
  return {d[2], d[0], d[1]};
}

Value sum_of(Formula& f, const std::vector<Value>& terms) { return terms.size() == 1 ? terms[0] : f.op("Sum", terms); }

// FCGradient is linear in dY and in each of X and W, so its derivatives are products of the same kind. The last axis
// of dY is its columns, whatever `axis` is.
std::vector<Gradient> second_derivatives(Formula& f) {
  const auto& a = f.args<FcArgs>();
  const bool has_dw = f.has_dy("dW"), has_db = f.has_dy("db"), has_dx = f.has_dy("dX");
  auto product = [&f](Value p, Value q, Value like, int axis_p, int axis_q, bool trans_p, bool trans_q, int axis_y) {
    return f.op("MatMul", {p, q, like},
                {make_arg("axis_a", axis_p), make_arg("axis_b", axis_q), make_arg("trans_a", trans_p),
                 make_arg("trans_b", trans_q), make_arg("axis_y", axis_y)});
  };
  Gradient x, w, dy;
  if (f.wants("X") && has_dw) x = product(f.x("dY"), f.dy("dW"), f.x("X"), -1, a.axis_w, false, false, a.axis);
  if (f.wants("W") && has_dx) w = product(f.x("dY"), f.dy("dX"), f.x("W"), -1, a.axis, true, false, a.axis_w);
  if (f.wants("dY")) {
    std::vector<Value> terms;
    if (has_dx) terms.push_back(product(f.dy("dX"), f.x("W"), f.x("dY"), a.axis, a.axis_w, false, true, -1));
    if (has_dw) terms.push_back(product(f.x("X"), f.dy("dW"), f.x("dY"), a.axis, a.axis_w, false, true, -1));
    if (has_db) terms.push_back(f.op("SumReduceLikeGradient", {f.x("dY"), f.dy("db")}));
    dy = sum_of(f, terms);
  }
  return {x, w, dy};
}

REGISTER(fc) {
  return op<FcArgs>("FC")
      .doc("Fully connected layer: Y = X W^T + b.")
      .arg("axis", &FcArgs::axis, 1, "X is flattened to a matrix whose rows are the dimensions before this one")
      .arg("axis_w", &FcArgs::axis_w, 1, "the same for W")
      .ignored_args({"float16_compute"})
      .input("X", "[M, K] after flattening")
      .input("W", "[N, K] after flattening")
      .input("b", "[N]")
      .output("Y", "the dimensions of X before axis, then N")
      .accumulates()
      .shape(infer)
      .flops(product_flops)
      .rowwise(leading_rows)
      .cpu(forward<float>, forward<double>)
      .derivatives({"X", "W", "b"}, derivatives);
}

REGISTER(fc_gradient) {
  return op<FcArgs>("FCGradient")
      .doc("Gradients of FC. Outputs that are not wanted are left out or \"\", and cost nothing.")
      .arg("axis", &FcArgs::axis, 1, "as FC's")
      .arg("axis_w", &FcArgs::axis_w, 1, "as FC's")
      .ignored_args({"float16_compute"})
      .input("X", "FC's X; its values are read for dW only")
      .input("W", "FC's W; its values are read for dX only")
      .input("dY", "gradient of FC's Y")
      .output("dW", "dY^T X")
      .optional()
      .uses({"X", "dY"})
      .accumulates()
      .output("db", "the sum of dY over its rows")
      .optional()
      .uses({"dY"})
      .accumulates()
      .output("dX", "dY W")
      .optional()
      .uses({"W", "dY"})
      .accumulates()
      .shape(infer_gradient)
      .flops(gradient_flops)
      .rowwise(leading_rows)
      .sums_rows()
      .cpu(gradient<float>, gradient<double>)
      .derivatives({"X", "W", "dY"}, second_derivatives);
}

}  // namespace
}  // namespace stepnet
