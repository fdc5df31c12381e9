// The kernels of fused_steps.h, built for several instruction sets (core/compute/simd.h), and the choice of the best.
#include "tools/bench/handwritten/fused_steps.h"

#include "core/compute/simd.h"

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

// The LSTM with layer normalisation works on whole rows.

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

#if defined(STEPNET_SIMD_V4)
const FusedKernels* fused_kernels_wide() { return cpu_is_x86_64_v4() ? &kFusedKernelsHere : nullptr; }
#else
const FusedKernels& fused_kernels_plain() { return kFusedKernelsHere; }

const FusedKernels& fused_kernels() {
  static const FusedKernels& best = fused_kernels_wide() ? *fused_kernels_wide() : fused_kernels_plain();
  return best;
}
#endif

}  // namespace stepnet::bench
