// The product of one row vector and a matrix, which reads each element of the matrix once and so runs at the speed of
// the memory that the matrix is in; stepnet/matmul.h is how to call it. Built for several instruction sets. The
// sum of an output has one order on one type of CPU, whatever range of outputs is asked for. Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

// c = a B, or c + a B, and a bias added if there is one, for the outputs `begin` to `end`. a is [k], c and the bias are
// [n]. Stored rows of B begin `ldb` elements apart; panels do not ask for that.
struct RowProduct {
  int64_t n = 0, k = 0;
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  bool accumulate = false;
  int64_t ldb = 0;
  const float* bias = nullptr;
};

struct RowProductKernels {
  void (*plain)(const RowProduct& p, int64_t begin, int64_t end);       // B is [k, n]
  void (*transposed)(const RowProduct& p, int64_t begin, int64_t end);  // B is stored [n, k]
  // B is stored in panels of `panel_columns` columns, [n / panel_columns, k, panel_columns]; n, `begin` and `end` are
  // multiples of that.
  void (*panels)(const RowProduct& p, int64_t begin, int64_t end);
  int64_t panel_columns;
};

const RowProductKernels& row_products_plain();  // for every CPU that the library runs on
const RowProductKernels* row_products_wide();   // for x86-64-v4; null if this CPU is none
const RowProductKernels& row_products();        // the best of them

}  // namespace stepnet
