// Copies of runs of elements between tensors on one device, whatever the type is: the GPU's
// operators/loops/copy_elements.h, whose copy_values works here, too. Elements are moved in units as wide as their
// places allow, up to 16 bytes. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/by_width.h"
#include "operators/loops/copy_elements.h"

namespace stepnet::gpu {

// The bytes of a tensor that a kernel can reach; throws Error if it is elsewhere.
inline const std::byte* bytes_of(const Tensor& t) { return elements<std::byte>(t); }
inline std::byte* bytes_of(Tensor& t) { return elements<std::byte>(t); }
inline size_t width_of(const Tensor& t) { return dtype_size(t.dtype()); }
inline size_t width_of(const Tensor& t, int64_t elements) { return static_cast<size_t>(elements) * width_of(t); }
inline size_t address(const std::byte* data) { return reinterpret_cast<uintptr_t>(data); }

struct alignas(16) Unit16 {
  uint64_t low = 0, high = 0;
};

// Calls fn with a zero of the widest unit that divides all of the numbers that were or-ed to `all`: those of bytes of
// rows and offsets, and addresses.
template <class Fn>
void with_unit(size_t all, const Fn& fn) {
  if (all % 16 == 0) return fn(Unit16{});
  if (all % 8 == 0) return fn(uint64_t{0});
  if (all % 4 == 0) return fn(uint32_t{0});
  if (all % 2 == 0) return fn(uint16_t{0});
  fn(uint8_t{0});
}

// Runs of `count` units whose starts lie so many units apart.
template <class Unit>
void copy_runs(const Call& call, const Unit* from, size_t from_stride, Unit* to, size_t to_stride, size_t runs,
               size_t count) {
  const Divider rows(count);
  each(call, runs * count, [=] __device__(size_t i) {
    const auto [run, place] = rows.split(i);
    to[run * to_stride + place] = from[run * from_stride + place];
  });
}

inline void copy_blocks(const Call& call, const Tensor& from, Tensor& to, const BlockCopy& plan) {
  const size_t count = width_of(from, plan.count), runs = static_cast<size_t>(plan.blocks);
  if (count == 0 || runs == 0) return;
  const size_t from_stride = width_of(from, plan.from_stride), to_stride = width_of(from, plan.to_stride);
  const std::byte* source = bytes_of(from) + width_of(from, plan.from_at);
  std::byte* target = bytes_of(to) + width_of(from, plan.to_at);
  if (runs == 1 || (from_stride == count && to_stride == count))
    return allocator(to.device()).copy_within(target, source, runs * count);
  with_unit(count | from_stride | to_stride | address(source) | address(target), [&](auto unit) {
    using Unit = decltype(unit);
    constexpr size_t width = sizeof(Unit);
    copy_runs(call, reinterpret_cast<const Unit*>(source), from_stride / width, reinterpret_cast<Unit*>(target),
              to_stride / width, runs, count / width);
  });
}

}  // namespace stepnet::gpu
