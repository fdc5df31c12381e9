#include "core/random.h"

#include <cmath>
#include <numbers>

namespace stepnet {
namespace {

uint64_t mix(uint64_t z) {  // the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t hash(std::string_view text) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return h;
}

__extension__ typedef unsigned __int128 Wide;

double unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

std::array<uint32_t, 4> philox(uint64_t key, uint64_t index) {
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

uint64_t random_key(uint64_t seed, std::string_view net, std::string_view output, int64_t iteration, int64_t timestep) {
  uint64_t h = mix(seed);
  h = mix(h ^ hash(net));
  h = mix(h ^ hash(output));
  h = mix(h ^ static_cast<uint64_t>(iteration));
  return mix(h ^ static_cast<uint64_t>(timestep));
}

double random_uniform(uint64_t key, uint64_t index) {
  const auto r = philox(key, index);
  return unit(r[0], r[1]);
}

double random_normal(uint64_t key, uint64_t index) {
  const auto r = philox(key, index);
  const double u = 1.0 - unit(r[0], r[1]);  // in (0, 1]: the logarithm is finite
  const double v = unit(r[2], r[3]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

int64_t random_int(uint64_t key, uint64_t index, int64_t low, int64_t high) {
  const auto r = philox(key, index);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t bits = static_cast<uint64_t>(r[0]) << 32 | r[1];
  if (range == 0) return static_cast<int64_t>(bits);
  const auto scaled = static_cast<uint64_t>(static_cast<Wide>(bits) * range >> 64);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + scaled);
}

}  // namespace stepnet
