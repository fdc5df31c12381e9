// The kernels of lstm_gates.h, for files that build them for one instruction set each; see
// core/compute/simd.h.
#pragma once

#include "core/compute/simd.h"
#include "operators/cells/lstm_gates.h"

namespace stepnet {

// Where the four gates of the elements stand.
template <class T>
struct LstmGates {
  T *i, *f, *o, *g;
};

template <class T>
[[gnu::always_inline]] static inline LstmGates<T> lstm_gates_at(T* first, int64_t step) {
  return {first, first + step, first + 2 * step, first + 3 * step};
}

// N elements side by side. The gates' values are stored if Keep.
template <int N, bool Keep, class T>
[[gnu::always_inline]] static inline void lstm_lanes(T forget_bias, const T* c_prev, const LstmGates<const T> x, T* h,
                                                     T* c, const LstmGates<T> kept) {
  // In two loops, so that many elements' first halves are under way before their second ones are.
  T state[N], open[N];
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const T i = sigmoid_of(x.i[j]), f = sigmoid_of(x.f[j] + forget_bias), g = tanh_of(x.g[j]);
    state[j] = fused(f, c_prev[j], i * g);
    open[j] = sigmoid_of(x.o[j]);
    if constexpr (Keep) {
      kept.i[j] = i;
      kept.f[j] = f;
      kept.o[j] = open[j];
      kept.g[j] = g;
    }
  }
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    c[j] = state[j];
    h[j] = open[j] * tanh_of(state[j]);
  }
}

// The second halves alone, with the same arithmetic; h if WithH.
template <int N, bool WithH, class T>
[[gnu::always_inline]] static inline void lstm_states_lanes(const T* c_prev, const LstmGates<const T> x, T* h, T* c) {
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const T state = fused(x.f[j], c_prev[j], x.i[j] * x.g[j]);
    c[j] = state;
    if constexpr (WithH) h[j] = x.o[j] * tanh_of(state);
  }
}

template <class T>
struct LstmSlopes {
  const T* c_prev;
  LstmGates<const T> x;
  const T *c, *dh, *dc;
  T* dc_prev;
  LstmGates<T> d;
};

// Active: x are the gates' values, not what they are made from.
template <bool Active, class T>
[[gnu::always_inline]] static inline T gate_of(T x) {
  return Active ? x : sigmoid_of(x);
}

template <int N, bool Active, class T>
[[gnu::always_inline]] static inline void lstm_gradient_lanes(T forget_bias, const LstmSlopes<T> p) {
  if (Active) forget_bias = 0;
  T e[N];
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const T o = gate_of<Active>(p.x.o[j]), t = tanh_of(p.c[j]), dh = p.dh[j];
    e[j] = fused(dh * o, fused(-t, t, T(1)), p.dc[j]);
    p.d.o[j] = dh * t * o * (T(1) - o);
  }
#pragma omp simd
  for (int j = 0; j < N; ++j) {
    const T i = gate_of<Active>(p.x.i[j]), f = gate_of<Active>(p.x.f[j] + forget_bias);
    const T g = Active ? p.x.g[j] : tanh_of(p.x.g[j]);
    const T c_prev = p.c_prev[j];
    p.dc_prev[j] = e[j] * f;
    p.d.i[j] = e[j] * g * i * (T(1) - i);
    p.d.f[j] = e[j] * c_prev * f * (T(1) - f);
    p.d.g[j] = e[j] * i * fused(-g, g, T(1));
  }
}

// Elements [at, at + N).
template <int N, bool Keep, class T>
static inline void lstm_piece(const LstmRow<T>& r, int64_t at) {
  T unwanted[N];
  lstm_lanes<N, Keep>(r.forget_bias, r.c_prev + at, lstm_gates_at(r.gates + at, r.d), r.h ? r.h + at : unwanted,
                      r.c ? r.c + at : unwanted, lstm_gates_at(Keep ? r.activated + at : unwanted, Keep ? r.d : 0));
}

template <int N, bool WithH, class T>
static inline void lstm_piece(const LstmStatesRow<T>& r, int64_t at) {
  T unwanted[N];
  lstm_states_lanes<N, WithH>(r.c_prev + at, lstm_gates_at(r.gates + at, r.d), WithH ? r.h + at : unwanted,
                              r.c ? r.c + at : unwanted);
}

template <int N, bool Active, class T>
static inline void lstm_piece(const LstmGradientRow<T>& r, int64_t at) {
  static constexpr T kZeros[N] = {};
  T unwanted[N];
  lstm_gradient_lanes<N, Active>(
      r.forget_bias,
      LstmSlopes<T>{r.c_prev ? r.c_prev + at : kZeros, lstm_gates_at(r.gates + at, r.d), r.c + at,
                    r.dh ? r.dh + at : kZeros, r.dc ? r.dc + at : kZeros, r.dc_prev ? r.dc_prev + at : unwanted,
                    lstm_gates_at(r.dgates ? r.dgates + at : unwanted, r.dgates ? r.d : 0)});
}

// The row in pieces of 32, then 16, 8 and 4, whose loops need no remainder, and single elements.
template <bool Option, class Row>
static inline void lstm_row(const Row& r) {
  int64_t at = 0;
  for (; at + 32 <= r.d; at += 32) lstm_piece<32, Option>(r, at);
  if (at + 16 <= r.d) {
    lstm_piece<16, Option>(r, at);
    at += 16;
  }
  if (at + 8 <= r.d) {
    lstm_piece<8, Option>(r, at);
    at += 8;
  }
  if (at + 4 <= r.d) {
    lstm_piece<4, Option>(r, at);
    at += 4;
  }
  for (; at < r.d; ++at) lstm_piece<1, Option>(r, at);
}

template <class T>
static void lstm_forward(const LstmRow<T>& r) {
  r.activated ? lstm_row<true>(r) : lstm_row<false>(r);
}
template <class T>
static void lstm_states(const LstmStatesRow<T>& r) {
  r.h ? lstm_row<true>(r) : lstm_row<false>(r);
}
template <class T>
static void lstm_gradient(const LstmGradientRow<T>& r) {
  r.activated ? lstm_row<true>(r) : lstm_row<false>(r);
}

static const LstmKernels kLstmKernelsHere = {lstm_forward<float>, lstm_forward<double>, lstm_states<float>,
                                             lstm_states<double>, lstm_gradient<float>, lstm_gradient<double>};

}  // namespace stepnet
