// LayerNorm: each row less its mean, divided by its standard deviation. X is flattened before `axis`, so a row is
// everything from that axis on, of n elements:
//   mean = sum(x) / n, std = sqrt(sum((x - mean)^2) / n + epsilon), u = (x - mean) / std,
//   y = u, or with elementwise_affine y = gamma u + beta.
//
// With e = dy, or dy gamma:
//   dx = (e - sum(e) / n - u sum(e u) / n) / std + dmean / n + dstd u / n,  dgamma = sum of dy u over rows,
//   dbeta = sum of dy over rows.
// Backward reads X, mean and std, and gamma for dX alone; a missing dY, dmean or dstd is zero. Its derivatives
// follow from these formulas.

#include "operators/norm/layer_norm.h"

#include <cmath>
#include <functional>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/composing.h"
#include "operators/norm/layer_norm_rows.h"

namespace stepnet::cpu_layer_norm {
namespace {

Shape statistics(const LayerNormArgs& a, const Shape& x) {
  Shape s(x.dims().first(canonical_axis(a.axis, x.rank())));
  s.push_back(1);
  return s;
}

void check_parameter(const LayerNormArgs& a, const ShapeCall& c, int i, const char* name, const Shape& x) {
  if (!c.known(i)) return;
  const int64_t size = rows_of(a, x).size;
  require(c.shape(i).size() == size, "{} is {}, but X {} has rows of {} values from axis {} on", name, c.shape(i), x,
          size, a.axis);
}

void infer(const LayerNormArgs& a, ShapeCall& c) {
  const bool whole = a.elementwise_affine ? c.inputs() == 3 && c.has(1) && c.has(2) : c.inputs() == 1;
  require(whole, "with elementwise_affine: {} it takes {}, but has {} inputs", int{a.elementwise_affine},
          a.elementwise_affine ? "X, gamma and beta" : "X alone", c.inputs());
  if (!c.known(0)) return;
  const Shape& x = c.shape(0);
  check_parameter(a, c, 1, "gamma", x);
  check_parameter(a, c, 2, "beta", x);
  c.set_like(0, 0);
  for (const int i : {1, 2}) c.set(i, c.dtype(0), statistics(a, x));
}

template <class T>
void forward(const LayerNormArgs& a, In<T> x, In<T> gamma, In<T> beta, Out<T> y, Out<T> mean, Out<T> deviation,
             Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  if (rows.size == 0) {
    std::ranges::fill(mean, T(0));
    std::ranges::fill(deviation, static_cast<T>(std::sqrt(static_cast<double>(a.epsilon))));
    return;
  }
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      NormRow<T> row{rows.size,   x.data() + r * rows.size,       a.elementwise_affine ? gamma.data() : nullptr,
                     beta.data(), static_cast<double>(a.epsilon), y.data() + r * rows.size};
      norm_kernels().forward(row);
      if (!mean.empty()) mean[r] = row.mean;
      if (!deviation.empty()) deviation[r] = row.deviation;
    }
  };
  parallel_for(rows.count, 20.0 + 0.3 * static_cast<double>(rows.size), std::ref(range));
}

double flops(const LayerNormArgs& a, const ShapeCall& c) {
  if (!c.known(0)) return 0;
  const AxisRows rows = rows_of(a, c.shape(0));
  return input_size(c, 0) * (a.elementwise_affine ? 8 : 6) + 4 * static_cast<double>(rows.count);
}

double gradient_flops(const LayerNormArgs& a, const ShapeCall& c) {
  const bool dx = c.wants(0);
  const int each = 2 + (dx ? 10 + int{a.elementwise_affine} : 0) + 2 * int{c.wants(1)} + int{c.wants(2)};
  return each * input_size(c, 4) + 4 * int{dx} * input_size(c, 2);
}

// The gradient's inputs: dY, Y, mean, std, X, gamma, dmean, dstd. Absent ones are empty.
template <class T>
struct GradientTensors {
  In<T> dy, mean, deviation, x, gamma, dmean, dstd;
  explicit GradientTensors(const Call& c)
      : dy(c.in_span<T>(0)),
        mean(c.in_span<T>(2)),
        deviation(c.in_span<T>(3)),
        x(c.in_span<T>(4)),
        gamma(c.in_span<T>(5)),
        dmean(c.in_span<T>(6)),
        dstd(c.in_span<T>(7)) {}
};

template <class T>
void gradient_row(const GradientTensors<T>& t, int64_t r, int64_t size, T* dx) {
  const auto at = [r](In<T> values) { return values.empty() ? T(0) : values[r]; };
  norm_kernels().gradient(NormGradientRow<T>{
      size, t.x.data() + r * size, t.dy.empty() ? nullptr : t.dy.data() + r * size,
      t.gamma.empty() ? nullptr : t.gamma.data(), t.mean[r], t.deviation[r], at(t.dmean), at(t.dstd), dx});
}

// Columns are shared out among threads, so that each sum has one order.
template <class T>
void sum_rows(const GradientTensors<T>& t, AxisRows rows, T* dgamma, T* dbeta, const Call& call) {
  if (dgamma && !call.accumulates(1)) std::fill_n(dgamma, rows.size, T(0));
  if (dbeta && !call.accumulates(2)) std::fill_n(dbeta, rows.size, T(0));
  if (t.dy.empty()) return;
  const NormSums<T> sums{rows.count,    rows.size,          t.x.data(), t.dy.data(),
                         t.mean.data(), t.deviation.data(), dgamma,     dbeta};
  constexpr int64_t kPiece = 64;
  const auto pieces = [&](int64_t begin, int64_t end) {
    norm_kernels().sums(sums, begin * kPiece, std::min(end * kPiece, rows.size));
  };
  parallel_for((rows.size + kPiece - 1) / kPiece, 0.1 * static_cast<double>(kPiece * rows.count), std::ref(pieces));
}

template <class T>
void gradient(const LayerNormArgs& a, Call& call) {
  const GradientTensors<T> t(call);
  const AxisRows rows = rows_of(a, call.in(4).shape());
  if (call.wants(0)) {
    T* dx = call.out_span<T>(0).data();
    auto range = [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) gradient_row(t, r, rows.size, dx + r * rows.size);
    };
    parallel_for(rows.count, 20.0 + 0.5 * static_cast<double>(rows.size), std::ref(range));
  }
  if (call.wants(1) || call.wants(2)) sum_rows(t, rows, call.out_span<T>(1).data(), call.out_span<T>(2).data(), call);
}

void infer_gradient(const LayerNormArgs& a, ShapeCall& c) {
  require(c.has(5) == a.elementwise_affine, "with elementwise_affine: {} gamma must {}be there",
          int{a.elementwise_affine}, a.elementwise_affine ? "" : "not ");
  if (!c.known(4)) return;
  const Shape& x = c.shape(4);
  check_parameter(a, c, 5, "gamma", x);
  if (c.known(0)) require(c.shape(0).size() == x.size(), "dY is {}, but X {}", c.shape(0), x);
  for (const auto& [i, name] : {std::pair{2, "mean"}, {3, "std"}, {6, "dmean"}, {7, "dstd"}})
    if (c.known(i))
      require(c.shape(i).size() == rows_of(a, x).count, "{} is {}, but X {} has {} rows before axis {}", name,
              c.shape(i), x, rows_of(a, x).count, a.axis);
  c.set_like(0, 4);
  const Shape parameter = c.known(5) ? c.shape(5) : Shape{rows_of(a, x).size};
  for (const int i : {1, 2}) c.set(i, c.dtype(4), parameter);
}

// Y alone: the shape of mean and std is not that of a vector.
std::vector<Value> body(Formula& f) {
  using composing::add, composing::by_row, composing::fill, composing::laid_over, composing::like_first, composing::map,
      composing::matrix, composing::reshaped, composing::row_means, composing::vector;
  const auto& a = f.args<LayerNormArgs>();
  const Value x = matrix(f, f.x("X"), a.axis), mean = row_means(f, x), off = like_first(f, "Sub", x, mean, by_row());
  const Value variance = row_means(f, map(f, "Sqr", off));
  const Value deviation = map(f, "Sqrt", add(f, variance, fill(f, variance, a.epsilon)));
  Value y = like_first(f, "Div", off, deviation, by_row());
  if (a.elementwise_affine) {
    y = like_first(f, "Mul", y, vector(f, f.x("gamma")), laid_over());
    y = like_first(f, "Add", y, vector(f, f.x("beta")), laid_over());
  }
  return {reshaped(f, y, f.x("X")), mean, deviation};
}

std::vector<Gradient> derivatives(Formula& f) {
  const bool affine = f.args<LayerNormArgs>().elementwise_affine;
  const Value mean = f.y("mean"), deviation = f.y("std");
  require(mean.defined() && deviation.defined(),
          "the gradient reads the outputs mean and std, which this LayerNorm does not have");
  std::vector<Value> inputs = {f.dy("Y"), f.y("Y"), mean, deviation, f.x("X"), affine ? f.x("gamma") : Value()};
  if (f.has_dy("mean") || f.has_dy("std")) inputs.insert(inputs.end(), {f.dy("mean"), f.dy("std")});
  const std::vector<bool> wanted = {f.wants("X"), affine && f.wants("gamma"), affine && f.wants("beta")};
  const std::vector<Value> d = f.ops("LayerNormGradient", inputs, f.forward_args(), wanted);
  return {d[0], d[1], d[2]};
}

// A number for each row is [rows], and one for each element of a row [n]. Mean and std count as inputs of their own
// here; that they are made of X is LayerNorm's derivative to say.
std::vector<Value> gradient_body(Formula& f) {
  using composing::add_given, composing::by_row, composing::laid_over, composing::like_first, composing::matrix,
      composing::mul, composing::reshaped, composing::row_means, composing::sub, composing::vector;
  const auto given = [&f](const char* name) { return f.has_x(name) ? f.x(name) : Value(); };
  const Value x = matrix(f, f.x("X"), f.args<LayerNormArgs>().axis), deviation = vector(f, f.x("std"));
  const auto by_rows = [&f](const char* type, Value v, Value numbers) {
    return like_first(f, type, v, numbers, by_row());
  };
  const Value u = by_rows("Div", by_rows("Sub", x, vector(f, f.x("mean"))), deviation);
  const auto row_mean = [&](Value v) { return f.same_shape(row_means(f, v), deviation); };
  // A row's number, divided by n, for each of its elements.
  const auto share = [&](Value of_rows) {
    const std::vector<Argument> args = {make_arg("axes", std::vector<int64_t>{1}), make_arg("keepdims", false)};
    return f.same_shape(f.op("ReduceMeanGradient", {vector(f, of_rows), x}, args), x);
  };
  const auto column_sum = [&](Value v) {
    return f.op("ReduceSum", {v}, {make_arg("axes", std::vector<int64_t>{0}), make_arg("keepdims", false)});
  };
  const Value gamma = given("gamma"), dmean = given("dmean"), dstd = given("dstd");
  const auto like_gamma = [&](Value v) { return gamma.defined() ? reshaped(f, v, gamma) : v; };
  Value dx, dgamma, dbeta;
  if (f.has_x("dY")) {
    const Value dy = reshaped(f, f.x("dY"), x);
    const Value e = gamma.defined() ? like_first(f, "Mul", dy, vector(f, gamma), laid_over()) : dy;
    const Value along = by_rows("Mul", u, row_mean(mul(f, e, u)));
    dx = by_rows("Div", sub(f, by_rows("Sub", e, row_mean(e)), along), deviation);
    dgamma = like_gamma(column_sum(mul(f, dy, u)));
    dbeta = like_gamma(column_sum(dy));
  }
  if (dmean.defined()) dx = add_given(f, dx, share(dmean));
  if (dstd.defined()) dx = add_given(f, dx, mul(f, u, share(dstd)));
  return {dx.defined() ? reshaped(f, dx, f.x("X")) : dx, dgamma, dbeta};
}

OpBuilder<LayerNormArgs>& add_args(OpBuilder<LayerNormArgs>& builder) {
  using A = LayerNormArgs;
  return builder.arg("axis", &A::axis, 1, "where a row begins")
      .arg("epsilon", &A::epsilon, 1e-5F, "added to the variance", float_at_least(0))
      .arg("elementwise_affine", &A::elementwise_affine, false, "whether there are inputs gamma and beta");
}

REGISTER(layer_norm) {
  auto builder = op<LayerNormArgs>("LayerNorm");
  builder.doc("Each row less its mean, divided by its standard deviation; with elementwise_affine scaled and shifted.");
  return add_args(builder)
      .input("X", "any shape of more than axis dimensions")
      .input("gamma", "a factor for each element of a row")
      .optional()
      .input("beta", "what is added to each element of a row")
      .optional()
      .output("Y", "like X")
      .output("mean", "of each row: X's dimensions before axis, then 1")
      .optional()
      .output("std", "of each row, epsilon included: like mean")
      .optional()
      .shape(infer)
      .rowwise(leading_rows<LayerNormArgs>)
      .example({"X=3,4"})
      .example({"X=2,3", "gamma=3", "beta=3"}, {"elementwise_affine=true", "epsilon=0.1"})
      .example({"X=2,2,3"}, {"axis=-1"})
      .example({"X=1,2,2", "gamma=2,2", "beta=2,2"}, {"elementwise_affine=true"})
      .example({"X=2,0", "gamma=0", "beta=0"}, {"elementwise_affine=true"})
      .flops(flops)
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivatives({"X", "gamma", "beta"}, derivatives)
      .composed(body);
}

REGISTER(layer_norm_gradient) {
  auto builder = op<LayerNormArgs>("LayerNormGradient");
  builder.doc("Gradients of LayerNorm. A missing dY, dmean or dstd counts as zeros.");
  return add_args(builder)
      .input("dY", "gradient of LayerNorm's Y")
      .optional()
      .input("Y", "LayerNorm's Y; its values are not read")
      .shape_only()
      .input("mean", "LayerNorm's")
      .input("std", "LayerNorm's")
      .input("X", "LayerNorm's")
      .input("gamma", "LayerNorm's, with elementwise_affine")
      .optional()
      .input("dmean", "gradient of mean")
      .optional()
      .input("dstd", "gradient of std")
      .optional()
      .output("dX", "like X")
      .optional()
      .uses({"dY", "mean", "std", "X", "gamma", "dmean", "dstd"})
      .output("dgamma", "like gamma")
      .optional()
      .uses({"dY", "mean", "std", "X"})
      .accumulates()
      .output("dbeta", "like gamma")
      .optional()
      .uses({"dY"})
      .accumulates()
      .shape(infer_gradient)
      .rowwise(leading_rows<LayerNormArgs, 4>)
      .sums_rows()
      .flops(gradient_flops)
      .cpu_for<float>(gradient<float>)
      .cpu_for<double>(gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_layer_norm
