// The kernels of activations.h, for files that build them for one instruction set each; see vector_functions.h.
#pragma once

#include "core/compute/activations.h"
#include "core/compute/vector_functions.h"

namespace stepnet {

struct TanhOf {
  template <class T>
  [[gnu::always_inline]] static inline T apply(T x) {
    return tanh_of(x);
  }
};
struct SigmoidOf {
  template <class T>
  [[gnu::always_inline]] static inline T apply(T x) {
    return sigmoid_of(x);
  }
};

template <int N, class Fn, class T>
[[gnu::always_inline]] static inline void activation_lanes(const T* x, T* y) {
#pragma omp simd
  for (int j = 0; j < N; ++j) y[j] = Fn::apply(x[j]);
}

// In pieces of 64, 16 and 4, whose loops need no remainder, and single elements.
template <class Fn, class T>
static void activation_loop(const T* x, T* y, size_t size) {
  size_t at = 0;
  for (; at + 64 <= size; at += 64) activation_lanes<64, Fn>(x + at, y + at);
  for (; at + 16 <= size; at += 16) activation_lanes<16, Fn>(x + at, y + at);
  for (; at + 4 <= size; at += 4) activation_lanes<4, Fn>(x + at, y + at);
  for (; at < size; ++at) activation_lanes<1, Fn>(x + at, y + at);
}

static const ActivationKernels kActivationsHere = {activation_loop<TanhOf, float>, activation_loop<TanhOf, double>,
                                                   activation_loop<SigmoidOf, float>,
                                                   activation_loop<SigmoidOf, double>};

}  // namespace stepnet
