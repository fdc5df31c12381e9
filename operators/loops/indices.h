// Row indices as kernels read them: int32 or int64, checked before use. Threads: pure functions.
#pragma once

#include <cstdint>

#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {

// Calls fn with a span of the elements, which are int32 or int64 (the operator's schema has checked).
template <class Fn>
void with_indices(const Tensor& indices, const Fn& fn) {
  if (indices.dtype() == DType::int32) return fn(indices.span<int32_t>());
  fn(indices.span<int64_t>());
}

// Throws Error naming the first index outside of [0, size).
inline void check_indices(const Tensor& indices, int64_t size) {
  with_indices(indices, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i)
      require(values[i] >= 0 && values[i] < size, "index {} is {}, which is outside of 0 to {}", i, values[i],
              size - 1);
  });
}

}  // namespace stepnet
