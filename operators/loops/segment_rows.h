// The rows of segments: which row of a table stands at a place, and all segments in turn, in parallel.
//
// Lengths and indices have been checked before. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/compute/threads.h"
#include "operators/loops/segment_lengths.h"

namespace stepnet {

// The row of DATA at a place of the segments: the place itself, or what INDICES has there.
class RowIndices {
 public:
  RowIndices() = default;
  explicit RowIndices(const Tensor& indices) {
    if (indices.dtype() == DType::int32) {
      narrow_ = indices.data<int32_t>();
    } else {
      wide_ = indices.data<int64_t>();
    }
  }
  int64_t operator[](int64_t place) const { return narrow_ ? narrow_[place] : wide_ ? wide_[place] : place; }

 private:
  const int32_t* narrow_ = nullptr;
  const int64_t* wide_ = nullptr;
};

// Calls fn(segment, first place, length) for every segment, in parallel if it is worth it.
template <class Fn>
void for_segments(const Tensor& lengths, double nanoseconds, const Fn& fn) {
  with_indices(lengths, [&](auto counts) {
    parallel_for(lengths.size(), nanoseconds, [&](int64_t begin, int64_t end) {
      int64_t at = std::accumulate(counts.begin(), counts.begin() + begin, int64_t{0});
      for (int64_t s = begin; s < end; ++s) {
        fn(s, at, static_cast<int64_t>(counts[s]));
        at += counts[s];
      }
    });
  });
}

// About the nanoseconds of one of the segments, which have so many rows of that size in all.
inline double segment_cost(int64_t rows, int64_t row, int64_t segments) {
  return 3 + 0.3 * static_cast<double>(row) * static_cast<double>(rows) /
                 static_cast<double>(std::max<int64_t>(segments, 1));
}

constexpr const char* kLengthsDoc = "[N], the number of rows of each segment";

}  // namespace stepnet
