// Kernels that move elements and do not look at them, whatever their type is. Threads: as gpu/runtime/launch.h.
#pragma once

#include <cstdint>
#include <utility>

#include "gpu/runtime/launch.h"

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
      fail("{} cannot be on a GPU", t);
  }
}

// The elements of a tensor as such integers; throws Error if a GPU cannot read them.
template <class W>
const W* elements(const Tensor& t) {
  require(t.size() == 0 || t.device().kind == DeviceKind::cuda, "{} is on {}, where a GPU cannot read it", t,
          t.device());
  return reinterpret_cast<const W*>(t.raw());
}
template <class W>
W* elements(Tensor& t) {
  return const_cast<W*>(elements<W>(std::as_const(t)));
}

}  // namespace stepnet::gpu
