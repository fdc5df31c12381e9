// tanh and the logistic function over arrays, in kernels that are built for several instruction sets and give the same
// bits in all; vec_tanh and vec_sigmoid are how to call them.
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
};

const ActivationKernels& activations_plain();  // for every CPU that the library runs on
const ActivationKernels* activations_wide();   // for x86-64-v4; null if this CPU is none
const ActivationKernels& activations();        // the best of them

}  // namespace stepnet
