// Lengths of segments that stand one after the other, as kernels read them: checked before use.
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "operators/loops/indices.h"
#include "stepnet/op_spec.h"

namespace stepnet {

struct SegmentLengths {
  int64_t sum = 0, longest = 0;
};

// Throws Error naming the first length that is negative; or if the sum does not fit 64 bits.
inline SegmentLengths read_segment_lengths(const Tensor& lengths) {
  SegmentLengths all;
  with_indices(lengths, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t length = values[i];
      if (length < 0) fail("length {} is {}, which is negative", i, length);
      if (__builtin_add_overflow(all.sum, length, &all.sum))
        fail("the lengths up to length {} add up to more than 64 bits can count", i);
      all.longest = std::max(all.longest, length);
    }
  });
  return all;
}

// Throws Error unless the lengths add up to `rows`, of which there are so many of `what`.
inline SegmentLengths check_segment_lengths(const Tensor& lengths, int64_t rows, const char* what) {
  const SegmentLengths all = read_segment_lengths(lengths);
  if (all.sum != rows) fail("the lengths add up to {}, but there are {} {}", all.sum, rows, what);
  return all;
}

// Input i of a shape function holds one length per segment, if it is there.
inline void require_one_dimension(const ShapeCall& call, int i, const char* what) {
  if (call.known(i))
    require(call.shape(i).rank() == 1, "{} must have one dimension, but have shape {}", what, call.shape(i));
}

// A number of rows as an element of an int32 output; throws Error if it does not fit.
inline int32_t to_int32(int64_t number, const char* what) {
  if (number > std::numeric_limits<int32_t>::max()) fail("{} {} does not fit int32", what, number);
  return static_cast<int32_t>(number);
}

}  // namespace stepnet
