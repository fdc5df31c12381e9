// The functions of core/compute/simd.h over arrays, in kernels that are built for several instruction sets and give the
// same bits in all; those of vector_math.h are how to call them.
// Input and output may be the same array, and must otherwise not overlap.
// Threads: pure functions.
#pragma once

#include <cstddef>

namespace stepnet {

struct ActivationKernels {
  void (*tanh_float)(const float* x, float* y, size_t size);
  void (*tanh_double)(const double* x, double* y, size_t size);
  void (*sigmoid_float)(const float* x, float* y, size_t size);
  void (*sigmoid_double)(const double* x, double* y, size_t size);
  void (*exp_float)(const float* x, float* y, size_t size);
  void (*exp_double)(const double* x, double* y, size_t size);
  void (*expm1_float)(const float* x, float* y, size_t size);
  void (*expm1_double)(const double* x, double* y, size_t size);
  void (*log_float)(const float* x, float* y, size_t size);
  void (*log_double)(const double* x, double* y, size_t size);
  void (*log1p_float)(const float* x, float* y, size_t size);
  void (*log1p_double)(const double* x, double* y, size_t size);
};

const ActivationKernels& activations_plain();  // for every CPU that the library runs on
const ActivationKernels* activations_wide();   // for x86-64-v4; null if this CPU is none
const ActivationKernels& activations();        // the best of them

}  // namespace stepnet
