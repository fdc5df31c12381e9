// The sum of a matrix's rows, as the gradient of a bias needs it. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "core/compute/threads.h"

namespace stepnet {

// db, [n], is the sum over the rows of dy, [m, n]; or is added to. Columns are shared out among threads, so that each
// sum has one order.
template <class T>
void sum_rows(int64_t m, int64_t n, const T* dy, T* db, bool accumulate) {
  auto sum_columns = [=](int64_t begin, int64_t end) {
    if (!accumulate) std::fill(db + begin, db + end, T(0));
    for (int64_t i = 0; i < m; ++i) {
      const T* row = dy + i * n;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) db[j] += row[j];
    }
  };
  parallel_for(n, 0.3 * static_cast<double>(m), std::ref(sum_columns));
}

}  // namespace stepnet
