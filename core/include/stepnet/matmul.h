// Matrix products on the CPU. Of float by oneDNN where the CPU has AVX-512, else by core/compute/product_kernels.h; of
// bfloat16 by oneDNN where the CPU multiplies it, else by those kernels, as float16 is; of double by Eigen.
//
//   C = op(A) op(B)          if !accumulate
//   C = C + op(A) op(B)      if accumulate
// and each row of C plus `bias`, [n], if that is not null.
//
// All matrices are dense, row-major; op(A) is [m, k], op(B) is [k, n], C is [m, n]. A is stored [k, m] if trans_a, B is
// [n, k] if trans_b. Any size may be 0 (k = 0 gives zeros). C must not overlap A or B.
// C is of the type of A, B and the bias, or of halves without a bias a float. Of halves the sums are in float, and an
// element of C is rounded once.
// `packs`: if it holds B, the product reads B as it was packed (core/compute/packed_weights.h).
// `b_in`, `c_in`: the pointer is that of a wider matrix, and B or C, as it is stored, is some of its columns.
// Threads: thread-safe but for `packs`; uses up to threads() threads unless serial_here().
#pragma once

#include <cstdint>
#include <type_traits>

namespace stepnet {

class WeightPacks;

// Columns of a matrix with `ld` columns, from `first` on; with an ld of 0, the matrix itself.
struct ColumnsIn {
  int64_t first = 0, ld = 0;
};

template <class T, class C>
void matmul(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, const T* b, C* c,
            bool accumulate = false, WeightPacks* packs = nullptr, const std::type_identity_t<T>* bias = nullptr,
            ColumnsIn b_in = {}, ColumnsIn c_in = {});

// Seconds and floating-point operations of all products so far in this process, for --profile.
struct MatmulCounters {
  double seconds = 0;
  double flops = 0;
  int64_t calls = 0;
};
MatmulCounters matmul_counters();
void count_matmuls(bool on);  // off by default: two clock reads per product

// Bytes that products keep at present: packed matrices, and what oneDNN works on. The allocator counts them, too.
int64_t product_bytes();
// Drops the calling thread's products of the sizes that it had so far; what they keep is free again.
void forget_products();

}  // namespace stepnet
