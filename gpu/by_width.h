// Kernels that move elements and do not look at them, whatever their type is. Threads: as gpu/launch.h.
#pragma once

#include <cstdint>

#include "gpu/launch.h"

namespace stepnet::gpu {

// Calls fn with an integer as wide as an element of the tensor; throws Error if none is, as of a string.
template <class Fn>
void by_width(const Tensor& t, const Fn& fn) {
  switch (dtype_size(t.dtype())) {
    case 1:
      return fn(uint8_t{});
    case 2:
      return fn(uint16_t{});
    case 4:
      return fn(uint32_t{});
    case 8:
      return fn(uint64_t{});
    default:
      fail("{} cannot be on a GPU", t.str());
  }
}

// The elements of a tensor as such integers.
template <class W>
const W* elements(const Tensor& t) {
  return reinterpret_cast<const W*>(t.raw());
}
template <class W>
W* elements(Tensor& t) {
  return reinterpret_cast<W*>(t.raw());
}

}  // namespace stepnet::gpu
