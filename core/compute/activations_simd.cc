// The kernels of activations.h, built for several instruction sets (core/compute/simd.h), and the choice of the best.
#include "core/compute/activations.h"

#include "core/compute/simd.h"

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

struct ExpOf {
  template <class T>
  [[gnu::always_inline]] static inline T apply(T x) {
    return exp_of(x);
  }
};
struct Expm1Of {
  template <class T>
  [[gnu::always_inline]] static inline T apply(T x) {
    return expm1_of(x);
  }
};
struct LogOf {
  template <class T>
  [[gnu::always_inline]] static inline T apply(T x) {
    return log_of(x);
  }
};
struct Log1pOf {
  template <class T>
  [[gnu::always_inline]] static inline T apply(T x) {
    return log1p_of(x);
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

static const ActivationKernels kActivationsHere = {
    activation_loop<TanhOf, float>,     activation_loop<TanhOf, double>,  activation_loop<SigmoidOf, float>,
    activation_loop<SigmoidOf, double>, activation_loop<ExpOf, float>,    activation_loop<ExpOf, double>,
    activation_loop<Expm1Of, float>,    activation_loop<Expm1Of, double>, activation_loop<LogOf, float>,
    activation_loop<LogOf, double>,     activation_loop<Log1pOf, float>,  activation_loop<Log1pOf, double>};

#if defined(STEPNET_SIMD_V4)
const ActivationKernels* activations_wide() { return cpu_is_x86_64_v4() ? &kActivationsHere : nullptr; }
#else
const ActivationKernels& activations_plain() { return kActivationsHere; }

const ActivationKernels& activations() {
  static const ActivationKernels& best = activations_wide() ? *activations_wide() : activations_plain();
  return best;
}
#endif

}  // namespace stepnet
