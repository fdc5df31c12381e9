// How kernels split a flat index into rows and columns: by numbers that the host knows, without dividing by them.
//
//   const gpu::Divider rows(width);
//   gpu::each(call, size, [=] __device__(size_t i) { const auto [row, column] = rows.split(i); ... });
//
// A GPU has no instruction that divides, and what stands in for one takes far longer than the rest of such a kernel,
// most of all with 64 bits. Indices below 2^32 are multiplied in 32 bits instead; others, which few tensors have, are
// divided as ever. So one kernel does for tensors of any size, and its threads all but always go the same way.
//
// Source: T. Granlund and P. L. Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994, figure
// 4.1, with N = 32: for l = ceil(log2 d) and m = floor(2^32 (2^l - d) / d) + 1 it is, for every n < 2^32,
//   n / d = (t + (n - t) / 2^min(l, 1)) / 2^max(l - 1, 0),  t = floor(m n / 2^32).
// Threads: pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace stepnet::gpu {

struct SplitIndex {
  size_t quotient = 0, remainder = 0;
};
struct SignedSplit {
  int64_t quotient = 0, remainder = 0;
};

class Divider {
 public:
  constexpr Divider() : Divider(1) {}
  // A divisor of 0, of a tensor that has no elements, stands for 1: nobody divides by it.
  constexpr explicit Divider(size_t divisor) : divisor_(divisor > 0 ? divisor : 1) {
    if (divisor_ >> 32 != 0) {  // all n < 2^32 are less: (0 + n / 2) / 2^31
      first_ = 1;
      rest_ = 31;
      return;
    }
    const int bits = std::bit_width(divisor_ - 1);
    multiplier_ = static_cast<uint32_t>((((uint64_t{1} << bits) - divisor_) << 32) / divisor_ + 1);
    first_ = bits > 0 ? 1 : 0;
    rest_ = static_cast<uint8_t>(bits > 0 ? bits - 1 : 0);
  }

  constexpr size_t divisor() const { return divisor_; }
  constexpr size_t divide(size_t n) const {
    return n >> 32 != 0 ? n / divisor_ : divide_short(static_cast<uint32_t>(n));
  }
  constexpr SplitIndex split(size_t n) const {
    if (n >> 32 != 0) return {n / divisor_, n % divisor_};
    const auto index = static_cast<uint32_t>(n), quotient = divide_short(index);
    return {quotient, index - quotient * static_cast<uint32_t>(divisor_)};
  }
  // For kernels that count with signed numbers.
  constexpr SignedSplit signed_split(size_t n) const {
    const SplitIndex s = split(n);
    return {static_cast<int64_t>(s.quotient), static_cast<int64_t>(s.remainder)};
  }

 private:
  constexpr uint32_t divide_short(uint32_t n) const {
    const auto t = static_cast<uint32_t>(uint64_t{multiplier_} * n >> 32);
    return (t + ((n - t) >> first_)) >> rest_;
  }

  size_t divisor_;
  uint32_t multiplier_ = 0;
  uint8_t first_ = 0, rest_ = 0;  // how far to shift
};

}  // namespace stepnet::gpu
