// The sum of a matrix's rows, as the gradient of a bias needs it. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "core/compute/half_spans.h"
#include "core/compute/threads.h"

namespace stepnet {

// Some columns of the sum below. Of halves it is in float, a piece of each row at a time.
template <class T>
requires(!is_half(dtype_of<T>())) void sum_columns_of_rows(int64_t m, int64_t n, const T* dy, T* db, bool accumulate,
                                                           int64_t begin, int64_t end) {
  if (!accumulate) std::fill(db + begin, db + end, T(0));
  for (int64_t i = 0; i < m; ++i) {
    const T* row = dy + i * n;
#pragma omp simd
    for (int64_t j = begin; j < end; ++j) db[j] += row[j];
  }
}
template <class Half, class C>
requires(is_half(dtype_of<Half>())) void sum_columns_of_rows(int64_t m, int64_t n, const Half* dy, C* db,
                                                             bool accumulate, int64_t begin, int64_t end) {
  constexpr int64_t kPiece = 256;
  float sums[kPiece];
  for (int64_t first = begin; first < end; first += kPiece) {
    const int64_t count = std::min(kPiece, end - first);
    for (int64_t j = 0; j < count; ++j) sums[j] = accumulate ? float(db[first + j]) : 0;
    for (int64_t i = 0; i < m; ++i) add_to_floats(dy + i * n + first, count, sums);
    for (int64_t j = 0; j < count; ++j) db[first + j] = C(sums[j]);
  }
}

// db, [n], is the sum over the rows of dy, [m, n]; or is added to. Columns are shared out among threads, so that each
// sum has one order. C is T, or float if T is a half type.
template <class T, class C>
void sum_rows(int64_t m, int64_t n, const T* dy, C* db, bool accumulate) {
  auto columns = [=](int64_t begin, int64_t end) { sum_columns_of_rows(m, n, dy, db, accumulate, begin, end); };
  parallel_for(n, 0.3 * static_cast<double>(m), std::ref(columns));
}

}  // namespace stepnet
