// FNV-1a, 64 bits: tells data that are known from others; no protection from anybody.
//
// Source: G. Fowler, L. C. Noll, K.-P. Vo, The FNV non-cryptographic hash algorithm. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stepnet {

inline constexpr uint64_t kEmptyHash = 0xCBF29CE484222325;  // of no bytes

// Of what `hash` is of, with these bytes behind it.
constexpr uint64_t hash_on(uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) hash = (hash ^ std::to_integer<uint64_t>(b)) * 0x100000001B3;
  return hash;
}

}  // namespace stepnet
