// What FC and its kin share: Y = X W[:, first : first + k]^T + b, where X is a matrix [m, k] and W [n, columns]. FC's
// window is all of W's columns. Or, of FCTransposed, Y = X W + b, where W is [k, n].
//
// Input 0 is X, 1 is W, and 2 is b, or of the gradients dY. An operator's arguments have `axis`, and say by
//   std::optional<FcSizes> sizes_of(const Args&, const ShapeCall&)   what is known, after the check that X and W fit
//   FcSizes sizes_of(const Args&, const Call&)
// what the sizes are. Threads: pure functions.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/sum_rows.h"
#include "operators/products/fc.h"
#include "operators/products/result.h"
#include "stepnet/half.h"
#include "stepnet/matmul.h"

namespace stepnet {

template <class Args>
void infer_fc(const Args& a, ShapeCall& c) {
  const std::optional<FcSizes> s = sizes_of(a, c);
  if (!s) return;
  if (c.known(2))
    require(c.shape(2) == Shape{s->n}, "b is {}, but W {} gives {} outputs, so b must be [{}]", c.shape(2), c.shape(1),
            s->n, s->n);
  c.set(0, c.dtype(0), fc_output_shape(a.axis, c.shape(0), s->n));
}

template <class Args>
void infer_fc_gradient(const Args& a, ShapeCall& c) {
  const std::optional<FcSizes> s = sizes_of(a, c);
  if (!s) return;
  const Shape y = fc_output_shape(a.axis, c.shape(0), s->n);
  if (c.known(2))
    require(c.shape(2).size() == y.size(), "dY is {}, but X {} and W {} give an output of {}", c.shape(2), c.shape(0),
            c.shape(1), y);
  c.set_like(0, 1);
  c.set(1, c.dtype(0), Shape{s->n});
  c.set_like(2, 0);
}

template <class Args, class T>
void fc_forward(const Args& a, In<T> x, In<T> w, In<T> b, Out<T> y, Call& call) {
  const FcSizes s = sizes_of(a, call);
  matmul(false, !s.transposed, s.m, s.n, s.k, x.data(), w.data(), y.data(), call.accumulates(0), call.run.packs,
         b.data(), s.in_w());
}

template <class T, class C>
void fc_weight_product(const FcSizes& s, const T* dy, const T* x, C* dw, bool accumulate) {
  if (s.transposed) return matmul(true, false, s.k, s.n, s.m, x, dy, dw, accumulate);
  matmul(true, false, s.n, s.k, s.m, dy, x, dw, accumulate || !s.whole(), nullptr, nullptr, {}, s.in_w());
}

template <class Args, class T>
void fc_gradient_products(const Args& a, In<T> x, In<T> w, In<T> dy, Call& call) {
  const FcSizes s = sizes_of(a, call);
  if (call.wants(0))
    with_result<T>(call, 0, [&](auto* dw) { fc_weight_product(s, dy.data(), x.data(), dw, call.accumulates(0)); });
  if (call.wants(2))
    matmul(false, s.transposed, s.m, s.k, s.n, dy.data(), w.data(), call.out_span<T>(2).data(), call.accumulates(2),
           call.run.packs, nullptr, s.in_w());
}

// Beside the window dW is zero, or stays as it is.
template <class Args, class T>
void fc_gradient(const Args& a, In<T> x, In<T> w, In<T> dy, Call& call) {
  const FcSizes s = sizes_of(a, call);
  if (call.wants(0) && !call.accumulates(0) && !s.whole())
    with_result<T>(call, 0, [&](auto* dw) { std::fill_n(dw, call.out(0).size(), 0.0F); });
  if (call.wants(1)) with_result<T>(call, 1, [&](auto* db) { sum_rows(s.m, s.n, dy.data(), db, call.accumulates(1)); });
  fc_gradient_products(a, x, w, dy, call);
}

template <class Args>
double fc_product_flops(const Args& a, const ShapeCall& c) {
  const std::optional<FcSizes> s = sizes_of(a, c);
  return s ? s->flops() : 0;
}

template <class Args>
double fc_flops(const Args& a, const ShapeCall& c) {
  return fc_product_flops(a, c) + (c.has(2) ? output_size(c, 0) : 0);
}

template <class Args>
double fc_gradient_flops(const Args& a, const ShapeCall& c) {
  const double rows = c.known(2) && c.wants(1) ? static_cast<double>(c.shape(2).size()) : 0;
  return fc_product_flops(a, c) * (int{c.wants(0)} + int{c.wants(2)}) + rows;
}

// The gradients of X, W and b, by the operator `gradient`. What it reads more than them are all inputs behind b.
inline std::vector<Gradient> fc_derivatives(Formula& f, std::string gradient) {
  std::vector<Value> inputs = {f.x("X"), f.x("W"), f.dy("Y")};
  for (int i = 3; i < f.inputs(); ++i) inputs.push_back(f.x_at(i));
  const std::vector<bool> wanted = {f.wants("W"), f.wants("b"), f.wants("X")};
  const std::vector<Value> d = f.ops(std::move(gradient), inputs, f.forward_args(), wanted);
  return {d[2], d[0], d[1]};
}

// The gradient of an FC, FCTransposed or FCColumns, `type`, is linear in dY and in each of X and W, so its derivatives
// are such products and their gradients again.
inline std::vector<Gradient> fc_second_derivatives(Formula& f, const std::string& type) {
  const Value dw = f.dy("dW"), db = f.dy("db"), dx = f.dy("dX");
  const auto with_parts = [&f](std::vector<Value> inputs) {
    for (int i = kFcParts; i < f.inputs(); ++i) inputs.push_back(f.x_at(i));
    return inputs;
  };
  const auto product = [&](Value x, Value w, Value b) { return f.op(type, with_parts({x, w, b}), f.forward_args()); };
  const auto gradient = [&](Value x, Value w, const std::vector<bool>& wanted) {
    return f.ops(type + "Gradient", with_parts({x, w, f.x("dY")}), f.forward_args(), wanted);
  };
  Gradient x, w, dy;
  if (f.wants("X") && dw.defined()) x = gradient(f.x("X"), dw, {false, false, true})[2];
  if (f.wants("W") && dx.defined()) w = gradient(dx, f.x("W"), {true, false, false})[0];
  if (f.wants("dY")) {
    std::vector<Value> terms;
    if (dx.defined()) terms.push_back(product(dx, f.x("W"), {}));
    if (dw.defined()) terms.push_back(product(f.x("X"), dw, db));
    if (db.defined() && !dw.defined()) terms.push_back(f.op("SumReduceLikeGradient", {f.x("dY"), db}));
    dy = terms.size() == 1 ? terms[0] : f.op("Sum", terms);
  }
  return {x, w, dy};
}

// Everything about the output of the operator, whose inputs are declared already.
template <class Args>
OpBuilder<Args>& declare_fc_output(OpBuilder<Args>& b) {
  return b.output("Y", "the dimensions of X before axis, then N")
      .accumulates()
      .shape(infer_fc<Args>)
      .flops(fc_flops<Args>)
      .rowwise(leading_rows<Args>)
      .cpu(fc_forward<Args, float>, fc_forward<Args, double>, fc_forward<Args, float16>, fc_forward<Args, bfloat16>)
      .workspace(fc_forward<Args, float>, fc_forward<Args, double>, fc_forward<Args, float16>,
                 fc_forward<Args, bfloat16>);
}

// Everything about the outputs of its gradient, whose inputs are declared already.
template <class Args>
OpBuilder<Args>& declare_fc_gradients(OpBuilder<Args>& b, std::string dw, std::string dx) {
  return b.output("dW", std::move(dw))
      .optional()
      .uses({"X", "dY"})
      .accumulates()
      .output("db", "the sum of dY over its rows")
      .optional()
      .uses({"dY"})
      .accumulates()
      .output("dX", std::move(dx))
      .optional()
      .uses({"W", "dY"})
      .accumulates()
      .shape(infer_fc_gradient<Args>)
      .flops(fc_gradient_flops<Args>)
      .rowwise(leading_rows<Args>)
      .sums_rows()
      .cpu(fc_gradient<Args, float>, fc_gradient<Args, double>)
      .cpu_halves(fc_gradient<Args, float16>, fc_gradient<Args, bfloat16>)
      .workspace(fc_gradient_products<Args, float>, fc_gradient_products<Args, double>,
                 fc_gradient_products<Args, float16>, fc_gradient_products<Args, bfloat16>);
}

}  // namespace stepnet
