// What stands in front of a kernel of timesteps (loop_body of gpu/runtime/loop_plan.h) where it is compiled as plain
// C++ for the imitated device: what CUDA has without headers, and what loop_source has of PTX.
//
// The compiler calls a function wherever such a kernel reads or writes memory that another thread could reach, as it
// does for the thread sanitizer; here these functions are the imitation's own, which knows of blocks, warps and shared
// memory (tests/gpu/emulated/loop_races.h). The same holds for addresses that are not aligned to what is read there at
// once, which a GPU refuses.
#pragma once

#include <math.h>  // NOLINT(modernize-deprecated-headers): exp and its like for float, outside of std

#include <bit>

#include "stepnet/half.h"
#include "tests/gpu/emulated/loop_calls.h"

#define __device__ inline
#define __global__
#define __grid_constant__

namespace emulated {

inline LoopCalls loop_calls;
inline LoopIndices loop_indices;

// Whether nobody else could reach it, or it is none of the kernel's.
__attribute__((no_sanitize_thread)) inline bool is_own(const void* at) {
  const auto within = [at](const void* first, size_t bytes) __attribute__((no_sanitize_thread)) {
    return static_cast<size_t>(static_cast<const char*>(at) - static_cast<const char*>(first)) < bytes;
  };
  return within(loop_calls.stacks, loop_calls.stack_bytes) || within(&loop_indices, sizeof(loop_indices));
}
__attribute__((no_sanitize_thread)) inline void read(const void* at, size_t bytes) {
  if (!is_own(at)) loop_calls.read(at, bytes);
}
__attribute__((no_sanitize_thread)) inline void write(const void* at, size_t bytes) {
  if (!is_own(at)) loop_calls.write(at, bytes);
}
__attribute__((no_sanitize_thread)) inline const WarpWords* exchange(WarpCall call, const WarpWords& mine) {
  return loop_calls.exchange(call, mine);
}

}  // namespace emulated

extern "C" {
void __tsan_init() {}
__attribute__((no_sanitize_thread)) void __tsan_read1(void* at) { emulated::read(at, 1); }
__attribute__((no_sanitize_thread)) void __tsan_read2(void* at) { emulated::read(at, 2); }
__attribute__((no_sanitize_thread)) void __tsan_read4(void* at) { emulated::read(at, 4); }
__attribute__((no_sanitize_thread)) void __tsan_read8(void* at) { emulated::read(at, 8); }
__attribute__((no_sanitize_thread)) void __tsan_read16(void* at) { emulated::read(at, 16); }
__attribute__((no_sanitize_thread)) void __tsan_write1(void* at) { emulated::write(at, 1); }
__attribute__((no_sanitize_thread)) void __tsan_write2(void* at) { emulated::write(at, 2); }
__attribute__((no_sanitize_thread)) void __tsan_write4(void* at) { emulated::write(at, 4); }
__attribute__((no_sanitize_thread)) void __tsan_write8(void* at) { emulated::write(at, 8); }
__attribute__((no_sanitize_thread)) void __tsan_write16(void* at) { emulated::write(at, 16); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_read2(void* at) { emulated::read(at, 2); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_read4(void* at) { emulated::read(at, 4); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_read8(void* at) { emulated::read(at, 8); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_read16(void* at) { emulated::read(at, 16); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_write2(void* at) { emulated::write(at, 2); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_write4(void* at) { emulated::write(at, 4); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_write8(void* at) { emulated::write(at, 8); }
__attribute__((no_sanitize_thread)) void __tsan_unaligned_write16(void* at) { emulated::write(at, 16); }
__attribute__((no_sanitize_thread)) void __tsan_read_range(void* at, long bytes) {
  emulated::read(at, static_cast<size_t>(bytes));
}
__attribute__((no_sanitize_thread)) void __tsan_write_range(void* at, long bytes) {
  emulated::write(at, static_cast<size_t>(bytes));
}
__attribute__((no_sanitize_thread)) void __ubsan_handle_type_mismatch_v1(void*, void*) {
  emulated::loop_calls.misuse("an address that is not aligned to its type");
}
__attribute__((no_sanitize_thread)) void __ubsan_handle_out_of_bounds(void*, void*) {
  emulated::loop_calls.misuse("an element behind the end of an array");
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

__attribute__((visibility("default"), no_sanitize_thread)) emulated::LoopIndices* emulated_enter(
    const emulated::LoopCalls& calls) {
  emulated::loop_calls = calls;
  return &emulated::loop_indices;
}
}

inline const auto &threadIdx = emulated::loop_indices.thread, &blockIdx = emulated::loop_indices.block,
                  &gridDim = emulated::loop_indices.grid;

__attribute__((no_sanitize_thread)) inline void __syncthreads() { emulated::loop_calls.synchronize(); }
__attribute__((no_sanitize_thread)) inline char* block_room() { return emulated::loop_calls.room(); }
__attribute__((no_sanitize_thread)) inline void add_release(unsigned* to) { emulated::loop_calls.add_release(to); }
__attribute__((no_sanitize_thread)) inline unsigned read_acquire(const unsigned* from) {
  return emulated::loop_calls.read_acquire(from);
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }

inline float __shfl_xor_sync(unsigned, float value, int lanes) {
  const auto* const all = emulated::exchange(emulated::WarpCall::shuffle, {{__float_as_uint(value)}});
  return __uint_as_float(all[threadIdx.x % 32 ^ static_cast<unsigned>(lanes)].words[0]);
}

inline void read_all_blocks(const unsigned short* from, unsigned& x) { x = *(const unsigned*)from; }
inline void read_all_blocks(const unsigned short* from, unsigned& x, unsigned& y) {
  struct alignas(8) Two {
    unsigned x, y;
  };
  const Two all = *(const Two*)from;
  x = all.x, y = all.y;
}
inline void read_all_blocks(const unsigned short* from, unsigned& x, unsigned& y, unsigned& z, unsigned& w) {
  struct alignas(16) Four {
    unsigned x, y, z, w;
  };
  const Four all = *(const Four*)from;
  x = all.x, y = all.y, z = all.z, w = all.w;
}

// As mma.m16n8k16 has its matrices in the registers of a warp: of A a lane has two neighbours in row lane / 4, the same
// in the row 8 further, and these 8 columns further; of B the same in column lane / 4; of the sums two neighbours in
// row lane / 4, and 8 rows further. `value`: of 16 bits.
template <class Value>
void add_product_of(Value value, float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                    unsigned b1) {
  const unsigned lane = threadIdx.x % 32;
  const auto* const all = emulated::exchange(emulated::WarpCall::product, {{a0, a1, a2, a3, b0, b1}});
  const auto half = [&](unsigned word, int k) {
    return value(static_cast<unsigned short>(k % 2 == 0 ? word & 0xffffu : word >> 16));
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned lower = i / 2, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const unsigned beside = static_cast<unsigned>(k % 8 / 2), further = static_cast<unsigned>(k / 8);
      sums[i] += half(all[lane / 4 * 4 + beside].words[lower + 2 * further], k) *
                 half(all[column * 4 + beside].words[4 + further], k);
    }
  }
}

// Of float16, where loop_source has PTX.
namespace float16_elements {
using Element = unsigned short;
inline float load(Element x) { return stepnet::float_of_half(x); }
inline Element store(float value) { return stepnet::half_of_float(value); }
}  // namespace float16_elements
