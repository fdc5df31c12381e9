// Products of float matrices for CPUs of x86-64-v3, on which Debian 12's oneDNN runs at half of what they can do.
//
// B is packed in panels of kPanelColumns columns, [columns / kPanelColumns][depth][kPanelColumns] for each block of at
// most kBlockDepth of its rows; A is packed in the same way, by rows, for each block of rows of C, unless C has few
// rows or columns. A tile of C stays in registers while one panel of each passes, as in Goto and van de Geijn, "Anatomy
// of High-Performance Matrix Multiplication" (2008).
//
// A and B may be of a half type: they turn into float32 as they are packed.
//
// Every element of C is summed up in one order, whatever the other sizes are: bits do not depend on how many rows or
// columns a call has. Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

// B, [k, n], as it is stored: [n, k] if `transposed`; `ld` elements from one stored row to the next.
struct StoredMatrix {
  int64_t n = 0, k = 0, ld = 0;
  bool transposed = false;
  bool operator==(const StoredMatrix&) const = default;
};

// C = op(A) B, or C + op(A) B, and each row plus `bias` if that is not null; op(A) is [m, k], of elements T. No size is
// 0.
template <class T>
struct FloatProduct {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  int64_t lda = 0;
  bool trans_a = false;
  float* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
  const float* bias = nullptr;
};

int64_t packed_floats(const StoredMatrix& shape);
template <class T>
void pack_matrix(const StoredMatrix& shape, const T* b, float* packed);

// What `scratch` has room for, with B packed before or not. Of the product, only the sizes count.
template <class T>
int64_t product_scratch_floats(const FloatProduct<T>& product, bool packed);
template <class T>
void run_packed_product(const FloatProduct<T>& product, const float* packed_b, float* scratch);
template <class T>
void run_product(const FloatProduct<T>& product, const StoredMatrix& shape, const T* b, float* scratch);

}  // namespace stepnet
