// The kernels of lstm_gates.h, for files that build them for one instruction set each; see core/vector_functions.h.
#pragma once

#include "core/vector_functions.h"
#include "operators/lstm_gates.h"

namespace stepnet {

// N elements side by side.
template <int N, class T>
[[gnu::always_inline]] static inline void lstm_lanes(T forget_bias, const T* c_prev, const T* xi, const T* xf,
                                                     const T* xo, const T* xg, T* h, T* c) {
  // In two loops, so that many elements' first halves are under way before their second ones are.
  T state[N], open[N];
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    state[j] = fused(sigmoid_of(xf[j] + forget_bias), c_prev[j], sigmoid_of(xi[j]) * tanh_of(xg[j]));
    open[j] = sigmoid_of(xo[j]);
  }
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    c[j] = state[j];
    h[j] = open[j] * tanh_of(state[j]);
  }
}

template <class T>
struct LstmSlopes {
  const T *c_prev, *xi, *xf, *xo, *xg, *c, *dh, *dc;
  T *dc_prev, *di, *df, *d_o, *dg;
};

template <int N, class T>
[[gnu::always_inline]] static inline void lstm_gradient_lanes(T forget_bias, const LstmSlopes<T> p) {
  T e[N];
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const T o = sigmoid_of(p.xo[j]), t = tanh_of(p.c[j]), dh = p.dh[j];
    e[j] = fused(dh * o, fused(-t, t, T(1)), p.dc[j]);
    p.d_o[j] = dh * t * o * (T(1) - o);
  }
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const T i = sigmoid_of(p.xi[j]), f = sigmoid_of(p.xf[j] + forget_bias), g = tanh_of(p.xg[j]);
    const T c_prev = p.c_prev[j];
    p.dc_prev[j] = e[j] * f;
    p.di[j] = e[j] * g * i * (T(1) - i);
    p.df[j] = e[j] * c_prev * f * (T(1) - f);
    p.dg[j] = e[j] * i * fused(-g, g, T(1));
  }
}

// Elements [at, at + N).
template <int N, class T>
static inline void lstm_piece(const LstmRow<T>& r, int64_t at) {
  T unwanted[N];
  const T* x = r.gates + at;
  lstm_lanes<N>(r.forget_bias, r.c_prev + at, x, x + r.d, x + 2 * r.d, x + 3 * r.d, r.h ? r.h + at : unwanted,
                r.c ? r.c + at : unwanted);
}

template <int N, class T>
static inline void lstm_piece(const LstmGradientRow<T>& r, int64_t at) {
  static constexpr T kZeros[N] = {};
  T unwanted[N];
  const T* x = r.gates + at;
  const int64_t step = r.dgates ? r.d : 0;
  T* const dx = r.dgates ? r.dgates + at : unwanted;
  lstm_gradient_lanes<N>(
      r.forget_bias, LstmSlopes<T>{r.c_prev + at, x, x + r.d, x + 2 * r.d, x + 3 * r.d, r.c + at,
                                   r.dh ? r.dh + at : kZeros, r.dc ? r.dc + at : kZeros,
                                   r.dc_prev ? r.dc_prev + at : unwanted, dx, dx + step, dx + 2 * step, dx + 3 * step});
}

// The row in pieces of 32, then 16, 8 and 4, whose loops need no remainder, and single elements.
template <class Row>
static inline void lstm_row(const Row& r) {
  int64_t at = 0;
  for (; at + 32 <= r.d; at += 32) lstm_piece<32>(r, at);
  if (at + 16 <= r.d) {
    lstm_piece<16>(r, at);
    at += 16;
  }
  if (at + 8 <= r.d) {
    lstm_piece<8>(r, at);
    at += 8;
  }
  if (at + 4 <= r.d) {
    lstm_piece<4>(r, at);
    at += 4;
  }
  for (; at < r.d; ++at) lstm_piece<1>(r, at);
}

static void lstm_forward_float(const LstmRow<float>& r) { lstm_row(r); }
static void lstm_forward_double(const LstmRow<double>& r) { lstm_row(r); }
static void lstm_gradient_float(const LstmGradientRow<float>& r) { lstm_row(r); }
static void lstm_gradient_double(const LstmGradientRow<double>& r) { lstm_row(r); }

static const LstmKernels kLstmKernelsHere = {lstm_forward_float, lstm_forward_double, lstm_gradient_float,
                                             lstm_gradient_double};

}  // namespace stepnet
