// The kernels of fused_steps.h, for files that build them for one instruction set each; see
// core/compute/vector_functions.h.
#pragma once

#include "core/compute/vector_functions.h"
#include "tools/bench/handwritten/fused_norm_lanes.h"
#include "tools/bench/handwritten/fused_steps.h"

namespace stepnet::bench {

// Elements [at, at + N) of each kind of step.
template <int N, bool Keep>
static inline void lanes(const GruForward& s, int64_t at) {
  const int64_t d = s.hidden;
  float *const x = s.gates_x + at, *const g = s.gates_h + at;
  const float *const b = s.b_x + at, *const e = s.b_h + at, *const h_prev = s.h_prev + at;
  float* const h = s.h + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float r = sigmoid_of(x[j] + g[j] + (b[j] + e[j]));
    const float z = sigmoid_of(x[d + j] + g[d + j] + (b[d + j] + e[d + j]));
    const float reset = g[2 * d + j] + e[2 * d + j];
    const float n = tanh_of(fused(r, reset, x[2 * d + j] + b[2 * d + j]));
    h[j] = fused(z, h_prev[j] - n, n);
    if (Keep) {
      x[j] = r;
      x[d + j] = z;
      x[2 * d + j] = n;
      g[2 * d + j] = reset;
    }
  }
}

template <int N, bool>
static inline void lanes(const GruBackward& s, int64_t at) {
  const int64_t d = s.hidden;
  float *const x = s.gates_x + at, *const g = s.gates_h + at, *const dh = s.dh + at;
  const float *const h_prev = s.h_prev + at, *const dy = s.dy + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float r = x[j], z = x[d + j], n = x[2 * d + j], e = dy[j] + dh[j];
    const float dn = e * (1 - z) * fused(-n, n, 1.0F);
    const float dz = e * (h_prev[j] - n) * z * (1 - z);
    const float dr = dn * g[2 * d + j] * r * (1 - r);
    x[j] = g[j] = dr;
    x[d + j] = g[d + j] = dz;
    x[2 * d + j] = dn;
    g[2 * d + j] = dn * r;
    dh[j] = e * z;
  }
}

template <int N, bool Keep>
static inline void lanes(const TwinOpen& s, int64_t at) {
  const int64_t d = s.hidden;
  float *const a = s.gates + at, *const c = s.c + at;
  const float *const b = s.b_x + at, *const e = s.b_h + at, *const c_prev = s.c_prev + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float f = sigmoid_of(a[j] + (b[j] + e[j]));
    const float i = sigmoid_of(a[d + j] + (b[d + j] + e[d + j]));
    const float mix = sigmoid_of(a[2 * d + j] + (b[2 * d + j] + e[2 * d + j]));
    const float u = tanh_of(a[3 * d + j] + (b[3 * d + j] + e[3 * d + j]));
    const float v = tanh_of(a[4 * d + j] + (b[4 * d + j] + e[4 * d + j]));
    c[j] = fused(f, c_prev[j], i * fused(mix, u - v, v));
    if (Keep) {
      a[j] = f;
      a[d + j] = i;
      a[2 * d + j] = mix;
      a[3 * d + j] = u;
      a[4 * d + j] = v;
    }
  }
}

template <int N, bool Keep>
static inline void lanes(const TwinClose& s, int64_t at) {
  float *const o = s.o + at, *const kept = s.tanh_c + at, *const h = s.h + at;
  const float *const b = s.b_c + at, *const c = s.c + at, *const h_prev = s.h_prev + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float open = sigmoid_of(o[j] + b[j]), t = tanh_of(c[j]);
    h[j] = fused(open, t - h_prev[j], h_prev[j]);
    if (Keep) {
      o[j] = open;
      kept[j] = t;
    }
  }
}

template <int N, bool>
static inline void lanes(const TwinCloseBackward& s, int64_t at) {
  float *const o = s.o + at, *const dh = s.dh + at, *const dc = s.dc + at;
  const float *const tanh_c = s.tanh_c + at, *const h_prev = s.h_prev + at, *const dy = s.dy + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float open = o[j], t = tanh_c[j], e = dy[j] + dh[j];
    o[j] = e * (t - h_prev[j]) * open * (1 - open);
    dc[j] = fused(e * open, fused(-t, t, 1.0F), dc[j]);
    dh[j] = e * (1 - open);
  }
}

template <int N, bool>
static inline void lanes(const TwinOpenBackward& s, int64_t at) {
  const int64_t d = s.hidden;
  float *const a = s.gates + at, *const dc = s.dc + at;
  const float* const c_prev = s.c_prev + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float f = a[j], i = a[d + j], mix = a[2 * d + j], u = a[3 * d + j], v = a[4 * d + j], e = dc[j];
    const float candidate = e * i;
    a[j] = e * c_prev[j] * f * (1 - f);
    a[d + j] = e * fused(mix, u - v, v) * i * (1 - i);
    a[2 * d + j] = candidate * (u - v) * mix * (1 - mix);
    a[3 * d + j] = candidate * mix * fused(-u, u, 1.0F);
    a[4 * d + j] = candidate * (1 - mix) * fused(-v, v, 1.0F);
    dc[j] = e * f;
  }
}

template <int N, bool>
static inline void lanes(const ColumnSums& s, int64_t at) {
  float sums[N] = {};
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* const a = s.a + r * s.width + at;
    const float* const b = s.b ? s.b + r * s.width + at : nullptr;
    if (b) {
#pragma omp simd
      for (int j = 0; j < N; ++j) sums[j] = fused(a[j], b[j], sums[j]);
    } else {
#pragma omp simd
      for (int j = 0; j < N; ++j) sums[j] += a[j];
    }
  }
  for (int j = 0; j < N; ++j) s.out[at + j] = sums[j];
}

// In pieces of 32, then 16, 8 and 4, whose loops need no remainder, and single elements.
template <class Step, bool Keep>
static void step_kernel(const Step& s, int64_t begin, int64_t end) {
  int64_t at = begin;
  for (; at + 32 <= end; at += 32) lanes<32, Keep>(s, at);
  if (at + 16 <= end) {
    lanes<16, Keep>(s, at);
    at += 16;
  }
  if (at + 8 <= end) {
    lanes<8, Keep>(s, at);
    at += 8;
  }
  if (at + 4 <= end) {
    lanes<4, Keep>(s, at);
    at += 4;
  }
  for (; at < end; ++at) lanes<1, Keep>(s, at);
}

static const FusedKernels kFusedKernelsHere = {step_kernel<GruForward, false>,
                                               step_kernel<GruForward, true>,
                                               step_kernel<GruBackward, false>,
                                               step_kernel<TwinOpen, false>,
                                               step_kernel<TwinOpen, true>,
                                               step_kernel<TwinClose, false>,
                                               step_kernel<TwinClose, true>,
                                               step_kernel<TwinCloseBackward, false>,
                                               step_kernel<TwinOpenBackward, false>,
                                               step_kernel<ColumnSums, false>,
                                               normalize_row,
                                               normalize_row_backward,
                                               norm_lstm_forward,
                                               norm_lstm_backward};

}  // namespace stepnet::bench
