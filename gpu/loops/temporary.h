// Memory that a kernel works on, and two sums that are taken together. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"
#include "stepnet/device.h"

namespace stepnet::gpu {

// Memory for the time of a kernel.
inline Tensor workspace(const Call& call, DType dtype, const Shape& shape) {
  const MemoryScope scope(MemoryCategory::workspace);
  return Tensor::empty(dtype, shape, place_of(call));
}
inline Tensor workspace(const Call& call, int64_t bytes) { return workspace(call, DType::uint8, {bytes}); }

// Uninitialised elements on the call's device, which are given back in stream order.
template <class T>
struct Temporary {
  Tensor bytes;
  T* data;

  Temporary(const Call& call, int64_t size)
      : bytes(workspace(call, size * static_cast<int64_t>(sizeof(T)))), data(reinterpret_cast<T*>(bytes.raw())) {}
};

struct Pair {
  double first = 0, second = 0;
  friend constexpr Pair operator+(const Pair& a, const Pair& b) { return {a.first + b.first, a.second + b.second}; }
};

}  // namespace stepnet::gpu
