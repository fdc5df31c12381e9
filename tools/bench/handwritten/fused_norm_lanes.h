// The kernels of the LSTM with layer normalisation, which work on whole rows; see fused_lanes.h, which includes this.
#pragma once

#include "core/compute/vector_functions.h"
#include "tools/bench/handwritten/fused_steps.h"

namespace stepnet::bench {

template <class Step, bool Keep>
static void step_kernel(const Step& s, int64_t begin, int64_t end);

constexpr float kNormEpsilon = 1e-5F;

// What a row is divided by, once its mean is off it, as a factor.
static inline float take_mean_off(float* row, int64_t size) {
  float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < size; ++j) sum += row[j];
  const float mean = sum / static_cast<float>(size);
#pragma omp simd reduction(+ : squares)
  for (int64_t j = 0; j < size; ++j) {
    row[j] -= mean;
    squares += row[j] * row[j];
  }
  return 1 / __builtin_sqrtf(squares / static_cast<float>(size) + kNormEpsilon);
}

static void normalize_row(const NormalizeRow& s, int64_t, int64_t) {
#pragma omp simd
  for (int64_t j = 0; j < s.size; ++j) s.row[j] += s.bias[j];
  const float factor = take_mean_off(s.row, s.size);
#pragma omp simd
  for (int64_t j = 0; j < s.size; ++j) s.row[j] *= factor;
  *s.factor = factor;
}

// The gradient of a row before its normalisation, from that after the gain. `out` may be `normalized`.
static void normalize_row_backward(const NormalizeRowBackward& s, int64_t, int64_t) {
  float sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
  for (int64_t j = 0; j < s.size; ++j) {
    const float e = s.gates[j] * s.gain[j];
    sum += e;
    along += e * s.normalized[j];
  }
  const float mean = sum / static_cast<float>(s.size), slope = along / static_cast<float>(s.size);
#pragma omp simd
  for (int64_t j = 0; j < s.size; ++j)
    s.out[j] = (fused(s.gates[j], s.gain[j], -mean) - s.normalized[j] * slope) * s.factor;
}

struct NormGates {
  const NormLstmForward& s;
};
struct NormOutput {
  const NormLstmForward& s;
  float factor;
};

template <int N, bool>
static inline void lanes(const NormGates& g, int64_t at) {
  const NormLstmForward& s = g.s;
  const int64_t d = s.hidden;
  const float *const x = s.norm_x + at, *const h = s.norm_h + at, *const p = s.gain_x + at, *const q = s.gain_h + at;
  const float *const shift = s.shift + at, *const c_prev = s.c_prev + at;
  float *const a = s.gates + at, *const c = s.c + at, *const n = s.norm_c + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float i = sigmoid_of(fused(x[j], p[j], fused(h[j], q[j], shift[j])));
    const float f = sigmoid_of(fused(x[d + j], p[d + j], fused(h[d + j], q[d + j], shift[d + j])));
    const float o = sigmoid_of(fused(x[2 * d + j], p[2 * d + j], fused(h[2 * d + j], q[2 * d + j], shift[2 * d + j])));
    const float t = tanh_of(fused(x[3 * d + j], p[3 * d + j], fused(h[3 * d + j], q[3 * d + j], shift[3 * d + j])));
    c[j] = n[j] = fused(f, c_prev[j], i * t);
    a[j] = i;
    a[d + j] = f;
    a[2 * d + j] = o;
    a[3 * d + j] = t;
  }
}

template <int N, bool>
static inline void lanes(const NormOutput& g, int64_t at) {
  float *const n = g.s.norm_c + at, *const t = g.s.tanh_c + at, *const h = g.s.h + at;
  const float *const o = g.s.gates + 2 * g.s.hidden + at, *const p = g.s.gain_c + at, *const q = g.s.shift_c + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    n[j] *= g.factor;
    t[j] = tanh_of(fused(n[j], p[j], q[j]));
    h[j] = o[j] * t[j];
  }
}

static void norm_lstm_forward(const NormLstmForward& s, int64_t, int64_t) {
  normalize_row({4 * s.hidden, s.norm_h, s.b_h, s.factor_h}, 0, 0);
  step_kernel<NormGates, false>({s}, 0, s.hidden);
  *s.factor_c = take_mean_off(s.norm_c, s.hidden);
  step_kernel<NormOutput, false>({s, *s.factor_c}, 0, s.hidden);
}

struct NormOutputBackward {
  const NormLstmBackward& s;
};
struct NormGatesBackward {
  const NormLstmBackward& s;
  float mean, slope;
};

template <int N, bool>
static inline void lanes(const NormOutputBackward& g, int64_t at) {
  float *const gate = g.s.gates + 2 * g.s.hidden + at, *const t = g.s.tanh_c + at;
  const float *const dh = g.s.dh + at, *const dy = g.s.dy + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float o = gate[j], tanh_c = t[j], e = dy[j] + dh[j];
    gate[j] = e * tanh_c * o * (1 - o);
    t[j] = e * o * fused(-tanh_c, tanh_c, 1.0F);
  }
}

template <int N, bool>
static inline void lanes(const NormGatesBackward& g, int64_t at) {
  const int64_t d = g.s.hidden;
  float *const a = g.s.gates + at, *const dc = g.s.dc + at;
  const float *const n = g.s.norm_c + at, *const dn = g.s.tanh_c + at, *const gain = g.s.gain_c + at;
  const float* const c_prev = g.s.c_prev + at;
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const float i = a[j], f = a[d + j], t = a[3 * d + j];
    const float e = fused(fused(dn[j], gain[j], -g.mean) - n[j] * g.slope, g.s.factor_c, dc[j]);
    a[j] = e * t * i * (1 - i);
    a[d + j] = e * c_prev[j] * f * (1 - f);
    a[3 * d + j] = e * i * fused(-t, t, 1.0F);
    dc[j] = e * f;
  }
}

static void norm_lstm_backward(const NormLstmBackward& s, int64_t, int64_t) {
  step_kernel<NormOutputBackward, false>({s}, 0, s.hidden);
  float sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
  for (int64_t j = 0; j < s.hidden; ++j) {
    const float e = s.tanh_c[j] * s.gain_c[j];
    sum += e;
    along += e * s.norm_c[j];
  }
  const auto size = static_cast<float>(s.hidden);
  step_kernel<NormGatesBackward, false>({s, sum / size, along / size}, 0, s.hidden);
  normalize_row_backward({4 * s.hidden, s.gates, s.gain_h, s.norm_h, s.factor_h, s.gates_h}, 0, 0);
}

}  // namespace stepnet::bench
