// LogSoftmax: Y = X - log(sum(exp(X))) per row. X is flattened before `axis`, so a row is everything from that axis on,
// as in Softmax, or a line along that axis alone. The greatest element is taken out of the sum first, so that nothing
// overflows.
//
// dX = dY - exp(Y) sum(dY) per row. It reads Y, not X. Its derivatives follow from the formula.

#include <algorithm>
#include <array>
#include <cmath>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/norm/softmax_lines.h"

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
void forward(const SoftmaxArgs& a, In<T> x, Out<T> y, Call& call) {
  each_softmax_line<T, 1>(softmax_lines(a, call.in(0).shape()), 2.0, {x.data()}, y.data(),
                          [](const auto& in, Out<T> out) { log_softmax_row(in[0], out); });
}

template <class T>
void gradient_row(In<T> y, In<T> dy, Out<T> dx) {
  const T sum = static_cast<T>(vec_sum(dy));
  each_exponential(y, [&](size_t begin, In<T> p) {
    for (size_t i = 0; i < p.size(); ++i) dx[begin + i] = dy[begin + i] - p[i] * sum;
  });
}

template <class T>
void gradient(const SoftmaxArgs& a, In<T> y, In<T> dy, Out<T> dx, Call& call) {
  each_softmax_line<T, 2>(softmax_lines(a, call.in(0).shape()), 2.0, {y.data(), dy.data()}, dx.data(),
                          [](const auto& in, Out<T> out) { gradient_row(in[0], in[1], out); });
}

void infer_gradient(const SoftmaxArgs& a, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "Y is {}, but dY {}", c.shape(0), c.shape(1));
  infer_softmax(a, c);
}

std::vector<Value> gradient_body(Formula& f) {
  using composing::map, composing::reshaped, composing::sub;
  const Value y = softmax_operand(f, f.x("Y")), dy = reshaped(f, f.x("dY"), y);
  const Value share = with_lines(f, "Mul", map(f, "Exp", y), line_sums(f, dy));
  return {reshaped(f, sub(f, dy, share), f.x("Y"))};
}

std::vector<Value> body(Formula& f) {
  const Value x = softmax_operand(f, f.x("X"));
  const Value log_sum = f.op("Log", {line_sums(f, composing::map(f, "Exp", x))});
  return {composing::reshaped(f, with_lines(f, "Sub", x, log_sum), f.x("X"))};
}

REGISTER(log_softmax) {
  auto builder = op<SoftmaxArgs>("LogSoftmax");
  return declare_softmax_axis(builder)
      .own()
      .doc(
          "The logarithm of Softmax, over everything from axis on, or along axis alone, exact also where Softmax is "
          "too small for its type.")
      .input("X", "scores, any shape of more than axis dimensions")
      .output("Y", "logarithms of probabilities", like("X"))
      .in_place("X", "Y")
      .shape(infer_softmax)
      .rowwise(leading_rows<SoftmaxArgs>)
      .example({"X=3,4"})
      .example({"X=2,3,2"}, {"axis=2"})
      .example({"X=2,3"}, {"axis=0"})
      .example({"X=2,1"}, {"axis=-1"})
      .example({"X=2,0"})
      .example({"X=2,3,2"}, {"single_axis=true"})
      .flops([](const auto& a, const ShapeCall& c) {
        return 4 * input_size(c, 0) + (c.known(0) ? static_cast<double>(softmax_lines(a, c.shape(0)).lines()) : 0);
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
  auto builder = op<SoftmaxArgs>("LogSoftmaxGradient");
  return declare_softmax_axis(builder)
      .own()
      .doc("Gradient of LogSoftmax, from its output.")
      .input("Y", "LogSoftmax's output")
      .input("dY", "its gradient")
      .output("dX", "dY - exp(Y) sum(dY) per row")
      .in_place("dY", "dX", {"Y"})
      .shape(infer_gradient)
      .rowwise(leading_rows<SoftmaxArgs>)
      .flops(flops_per_output(4))
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_log_softmax
