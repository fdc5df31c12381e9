// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
//
// A draw is a pure function of a 64-bit key and a 64-bit element index, so it does not depend on threads or on the
// order of operators, and a resumed run continues as if it had never stopped. Threads: pure functions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace stepnet {

// The key of one operator's draws.
uint64_t random_key(uint64_t seed, std::string_view net, std::string_view output, int64_t iteration, int64_t timestep);

// constexpr, so that GPUs draw by the same code.
constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t index) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0};
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// In [0, 1), 53 bits.
constexpr double unit_of(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}
constexpr double random_uniform(uint64_t key, uint64_t index) {
  const auto r = philox(key, index);
  return unit_of(r[0], r[1]);
}

// Mean 0, variance 1 (Box and Muller).
constexpr double random_normal(uint64_t key, uint64_t index) {
  const auto r = philox(key, index);
  const double u = 1.0 - unit_of(r[0], r[1]);  // in (0, 1]: the logarithm is finite
  const double v = unit_of(r[2], r[3]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

// In [low, high], both included.
constexpr int64_t random_int(uint64_t key, uint64_t index, int64_t low, int64_t high) {
  __extension__ using Wide = unsigned __int128;
  const auto r = philox(key, index);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t bits = static_cast<uint64_t>(r[0]) << 32 | r[1];
  if (range == 0) return static_cast<int64_t>(bits);
  const auto scaled = static_cast<uint64_t>(static_cast<Wide>(bits) * range >> 64);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + scaled);
}

}  // namespace stepnet
