// The arithmetic of LayerNorm and of its gradient over rows, in kernels that are built for several instruction sets.
//
// On one type of CPU a row's sums have one order, and so have the sums over rows, whatever range of columns is asked
// for. y may be x. Formulas: see layer_norm.cc.
// Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

// A row of n elements; gamma and beta are null where there is no scale and shift.
template <class T>
struct NormRow {
  int64_t n;
  const T *x, *gamma, *beta;
  double epsilon;
  T* y;
  T mean = 0, deviation = 0;  // results
};

// dy is null where it counts as zeros, gamma where there is no scale. dmean, dstd: what comes to the row's mean and
// deviation from outside.
template <class T>
struct NormGradientRow {
  int64_t n;
  const T *x, *dy, *gamma;
  T mean, deviation, dmean, dstd;
  T* dx;
};

// Sums over rows of n elements, for the columns `begin` to `end`, added to dgamma and dbeta; either may be null.
template <class T>
struct NormSums {
  int64_t rows, n;
  const T *x, *dy, *mean, *deviation;
  T *dgamma, *dbeta;
};

struct NormKernels {
  void (*forward_float)(NormRow<float>&);
  void (*forward_double)(NormRow<double>&);
  void (*gradient_float)(const NormGradientRow<float>&);
  void (*gradient_double)(const NormGradientRow<double>&);
  void (*sums_float)(const NormSums<float>&, int64_t begin, int64_t end);
  void (*sums_double)(const NormSums<double>&, int64_t begin, int64_t end);

  void forward(NormRow<float>& row) const { forward_float(row); }
  void forward(NormRow<double>& row) const { forward_double(row); }
  void gradient(const NormGradientRow<float>& row) const { gradient_float(row); }
  void gradient(const NormGradientRow<double>& row) const { gradient_double(row); }
  void sums(const NormSums<float>& s, int64_t begin, int64_t end) const { sums_float(s, begin, end); }
  void sums(const NormSums<double>& s, int64_t begin, int64_t end) const { sums_double(s, begin, end); }
};

const NormKernels& norm_kernels_plain();  // for every CPU that the library runs on
const NormKernels* norm_kernels_wide();   // for x86-64-v4; null if this CPU is none
const NormKernels& norm_kernels();        // the best of them

}  // namespace stepnet
