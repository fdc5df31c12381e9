// What Softmax and LogSoftmax do alike on a CPU: how they declare their axis, run over lines, and sum along them in
// bodies. Threads: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include "core/compute/threads.h"
#include "operators/loops/composing.h"
#include "operators/norm/softmax.h"

namespace stepnet {

inline OpBuilder<SoftmaxArgs>& declare_softmax_axis(OpBuilder<SoftmaxArgs>& builder) {
  return builder
      .arg("axis", &SoftmaxArgs::axis, 1,
           "where a row begins, which has all dimensions from there on: with 1, [2, 3, 4] is 2 rows of 12")
      .arg("single_axis", &SoftmaxArgs::single_axis, false,
           "along this axis alone: with 1, [2, 3, 4] has 8 lines of 3, each normalised by itself")
      .own_args({"single_axis"});
}

inline void infer_softmax(const SoftmaxArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  canonical_axis(a.axis, c.shape(0).rank());
  c.set_like(0, 0);
}

// Calls fn(inputs, output) with the spans of each line. Where elements of a line do not stand side by side, the spans
// are copies. The output may be an input.
template <class T, size_t N, class Fn>
void each_softmax_line(const OneAxis& lines, double cost_per_element, const std::array<const T*, N>& in, T* out,
                       Fn fn) {
  if (lines.size == 0) return;
  const auto size = static_cast<size_t>(lines.size);
  auto range = [&](int64_t begin, int64_t end) {
    const std::span<T> copies = thread_buffer<T>(ThreadBuffer::lines, lines.inner > 1 ? (N + 1) * size : 0);
    std::array<In<T>, N> spans;
    for (int64_t line = begin; line < end; ++line) {
      const int64_t first = lines.first(line);
      if (lines.inner == 1) {
        for (size_t n = 0; n < N; ++n) spans[n] = In<T>(in[n] + first, size);
        fn(spans, Out<T>(out + first, size));
        continue;
      }
      for (size_t n = 0; n < N; ++n) {
        for (size_t i = 0; i < size; ++i) copies[n * size + i] = in[n][first + static_cast<int64_t>(i) * lines.inner];
        spans[n] = In<T>(copies.data() + n * size, size);
      }
      const Out<T> result(copies.data() + N * size, size);
      fn(spans, result);
      for (size_t i = 0; i < size; ++i) out[first + static_cast<int64_t>(i) * lines.inner] = result[i];
    }
  };
  parallel_for(lines.lines(), 2.0 + cost_per_element * static_cast<double>(size), std::ref(range));
}

// Bodies are of matrices with lines as rows, or of one axis as it stands.
inline Value softmax_operand(Formula& f, Value x) {
  const auto& a = f.args<SoftmaxArgs>();
  return a.single_axis ? x : composing::matrix(f, x, a.axis);
}

// fn of each element of `x` and a value of its line.
inline Value with_lines(Formula& f, const std::string& type, Value x, Value of_lines) {
  const auto& a = f.args<SoftmaxArgs>();
  if (!a.single_axis) return composing::like_first(f, type, x, of_lines, composing::by_row());
  const std::vector<Argument> along = {make_arg("axes", std::vector<int64_t>{a.axis}), make_arg("keepdims", false)};
  return composing::like_first(f, type, x, f.same_shape(f.op("ReduceSumGradient", {of_lines, x}, along), x));
}

inline Value line_sums(Formula& f, Value x) {
  const auto& a = f.args<SoftmaxArgs>();
  if (!a.single_axis) return composing::row_sums(f, x);
  return f.op("ReduceSum", {x}, {make_arg("axes", std::vector<int64_t>{a.axis}), make_arg("keepdims", false)});
}

}  // namespace stepnet
