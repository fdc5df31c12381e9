// The kernels of fused.h, for files that build them for one instruction set each; see vector_functions.h.
#pragma once

#include "core/fused.h"
#include "core/vector_functions.h"

namespace stepnet {

template <class T, class Fn>
[[gnu::always_inline]] static inline void fused_each(int64_t n, T* to, Fn fn) {
  if (n == kFusedPiece) {
#pragma omp simd
    for (int64_t j = 0; j < kFusedPiece; ++j) to[j] = fn(j);
  } else {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) to[j] = fn(j);
  }
}

template <class T>
static inline void fused_instruction(const FusedInstruction& i, T* const* operands, int64_t n) {
  const T *a = operands[i.a], *b = operands[i.b];
  T* to = operands[i.to];
  const T value = static_cast<T>(i.value);
  switch (i.code) {
    case FusedCode::copy:
      return fused_each(n, to, [=](int64_t j) { return a[j]; });
    case FusedCode::add:
      return fused_each(n, to, [=](int64_t j) { return a[j] + b[j]; });
    case FusedCode::sub:
      return fused_each(n, to, [=](int64_t j) { return a[j] - b[j]; });
    case FusedCode::mul:
      return fused_each(n, to, [=](int64_t j) { return a[j] * b[j]; });
    case FusedCode::negative:
      return fused_each(n, to, [=](int64_t j) { return -a[j]; });
    case FusedCode::one_minus:
      return fused_each(n, to, [=](int64_t j) { return T(1) - a[j]; });
    case FusedCode::scale:
      return fused_each(n, to, [=](int64_t j) { return a[j] * value; });
    case FusedCode::relu:
      return fused_each(n, to, [=](int64_t j) { return a[j] < T(0) ? T(0) : a[j]; });
    case FusedCode::if_positive:
      return fused_each(n, to, [=](int64_t j) { return a[j] > T(0) ? b[j] : T(0); });
    case FusedCode::sigmoid:
      return fused_each(n, to, [=](int64_t j) { return sigmoid_of(a[j]); });
    case FusedCode::tanh:
      return fused_each(n, to, [=](int64_t j) { return tanh_of(a[j]); });
  }
}

template <class T>
static void fused_run(const FusedLoop<T>& loop, int64_t begin, int64_t end) {
  alignas(64) T values[kMostFusedValues][kFusedPiece];
  T* operands[kMostFusedTensors + kMostFusedValues];
  for (int v = 0; v < kMostFusedValues; ++v) operands[loop.count + v] = values[v];
  const int64_t pieces = fused_pieces(loop.width);
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t row = piece / pieces, at = piece % pieces * kFusedPiece;
    const int64_t n = loop.width - at < kFusedPiece ? loop.width - at : kFusedPiece;
    for (int t = 0; t < loop.count; ++t) operands[t] = loop.tensors[t].first + row * loop.tensors[t].stride + at;
    for (int i = 0; i < loop.instructions; ++i) fused_instruction(loop.code[i], operands, n);
  }
}

static const FusedKernels kFusedKernelsHere = {fused_run<float>, fused_run<double>};

}  // namespace stepnet
