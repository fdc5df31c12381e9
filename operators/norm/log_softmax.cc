// LogSoftmax: Y = X - log(sum(exp(X))) per row. X is flattened before `axis`, so a row is everything from that axis on,
// as in Softmax. The greatest element is taken out of the sum first, so that nothing overflows.
//
// dX = dY - exp(Y) sum(dY) per row. It reads Y, not X. Its derivatives follow from the formula.

#include "operators/norm/log_softmax.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/composing.h"

namespace stepnet::cpu_log_softmax {
namespace {

// Calls fn(begin, exponentials) for one piece of the row after the other.
template <class T, class Fn>
void each_exponential(In<T> x, Fn fn) {
  constexpr size_t kPiece = 256;
  std::array<T, kPiece> buffer;
  for (size_t begin = 0; begin < x.size(); begin += kPiece) {
    const In<T> piece = x.subspan(begin, std::min(kPiece, x.size() - begin));
    const Out<T> e(buffer.data(), piece.size());
    vec_exp(piece, e);
    fn(begin, In<T>(e));
  }
}

template <class T>
void log_softmax_row(In<T> x, Out<T> y) {
  const T most = vec_max(x);
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] - most;
  double sum = 0;
  each_exponential(In<T>(y), [&](size_t, In<T> e) { sum += vec_sum(e); });
  const T log_sum = static_cast<T>(std::log(sum));
  for (T& value : y) value -= log_sum;
}

template <class T>
void forward(const LogSoftmaxArgs& a, In<T> x, Out<T> y, Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  if (rows.size == 0) return;
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      log_softmax_row(x.subspan(r * rows.size, rows.size), y.subspan(r * rows.size, rows.size));
  };
  parallel_for(rows.count, 2.0 * static_cast<double>(rows.size), std::ref(range));
}

template <class T>
void gradient_row(In<T> y, In<T> dy, Out<T> dx) {
  const T sum = static_cast<T>(vec_sum(dy));
  each_exponential(y, [&](size_t begin, In<T> p) {
    for (size_t i = 0; i < p.size(); ++i) dx[begin + i] = dy[begin + i] - p[i] * sum;
  });
}

template <class T>
void gradient(const LogSoftmaxArgs& a, In<T> y, In<T> dy, Out<T> dx, Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * rows.size;
      gradient_row(y.subspan(at, rows.size), dy.subspan(at, rows.size), dx.subspan(at, rows.size));
    }
  };
  parallel_for(rows.count, 2.0 * static_cast<double>(rows.size), std::ref(range));
}

void infer(const LogSoftmaxArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  canonical_axis(a.axis, c.shape(0).rank());
  c.set_like(0, 0);
}

void infer_gradient(const LogSoftmaxArgs& a, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "Y is {}, but dY {}", c.shape(0), c.shape(1));
  infer(a, c);
}

std::vector<Value> gradient_body(Formula& f) {
  using composing::by_row, composing::like_first, composing::map, composing::matrix, composing::reshaped,
      composing::row_sums, composing::sub;
  const Value y = matrix(f, f.x("Y"), f.args<LogSoftmaxArgs>().axis), dy = reshaped(f, f.x("dY"), y);
  const Value share = like_first(f, "Mul", map(f, "Exp", y), row_sums(f, dy), by_row());
  return {reshaped(f, sub(f, dy, share), f.x("Y"))};
}

std::vector<Value> body(Formula& f) {
  using composing::by_row, composing::like_first, composing::map, composing::matrix, composing::reshaped,
      composing::row_sums;
  const Value x = matrix(f, f.x("X"), f.args<LogSoftmaxArgs>().axis);
  const Value log_sum = f.op("Log", {row_sums(f, map(f, "Exp", x))});
  return {reshaped(f, like_first(f, "Sub", x, log_sum, by_row()), f.x("X"))};
}

REGISTER(log_softmax) {
  return op<LogSoftmaxArgs>("LogSoftmax")
      .own()
      .doc(
          "The logarithm of Softmax, over everything from axis on, exact also where Softmax is too small for its type.")
      .arg("axis", &LogSoftmaxArgs::axis, 1,
           "where a row begins, which has all dimensions from there on: with 1, [2, 3, 4] is 2 rows of 12")
      .input("X", "scores, any shape of more than axis dimensions")
      .output("Y", "logarithms of probabilities", like("X"))
      .in_place("X", "Y")
      .shape(infer)
      .rowwise(leading_rows<LogSoftmaxArgs>)
      .example({"X=3,4"})
      .example({"X=2,3,2"}, {"axis=2"})
      .example({"X=2,3"}, {"axis=0"})
      .example({"X=2,1"}, {"axis=-1"})
      .example({"X=2,0"})
      .flops([](const auto& a, const ShapeCall& c) {
        return 4 * input_size(c, 0) + (c.known(0) ? static_cast<double>(rows_of(a, c.shape(0)).count) : 0);
      })
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("X",
                  [](Formula& f) {
                    return f.op("LogSoftmaxGradient", {f.y("Y"), f.dy("Y")}, f.forward_args());
                  })
      .composed(body);
}

REGISTER(log_softmax_gradient) {
  return op<LogSoftmaxArgs>("LogSoftmaxGradient")
      .own()
      .doc("Gradient of LogSoftmax, from its output.")
      .arg("axis", &LogSoftmaxArgs::axis, 1, "as LogSoftmax's")
      .input("Y", "LogSoftmax's output")
      .input("dY", "its gradient")
      .output("dX", "dY - exp(Y) sum(dY) per row")
      .in_place("dY", "dX", {"Y"})
      .shape(infer_gradient)
      .rowwise(leading_rows<LogSoftmaxArgs>)
      .flops(flops_per_output(4))
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_log_softmax
