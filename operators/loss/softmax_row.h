// Arithmetic on a row of scores that softmax losses share. Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

// y = x - shift
template <class T>
void subtract_from_row(int64_t size, const T* x, T shift, T* y) {
#pragma omp simd
  for (int64_t j = 0; j < size; ++j) y[j] = x[j] - shift;
}

// y = factor x
template <class T>
void multiply_row(int64_t size, T factor, const T* x, T* y) {
#pragma omp simd
  for (int64_t j = 0; j < size; ++j) y[j] = factor * x[j];
}

}  // namespace stepnet
