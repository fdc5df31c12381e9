// What Accuracy (accuracy.cc) asks of a row, for the CPU and for GPUs. Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

struct AccuracyArgs {
  int64_t top_k = 1;
};

// Whether fewer than k classes come before the label.
template <class T>
constexpr bool is_among_best(const T* scores, int64_t classes, int64_t label, int64_t k) {
  int64_t before = 0;
  for (int64_t j = 0; j < classes && before < k; ++j)
    if (scores[j] > scores[label] || (scores[j] == scores[label] && j < label)) ++before;
  return before < k;
}

}  // namespace stepnet
