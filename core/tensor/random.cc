#include "stepnet/random.h"

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

}  // namespace

uint64_t random_key(uint64_t seed, std::string_view net, std::string_view output, int64_t iteration, int64_t timestep) {
  uint64_t h = mix(seed);
  h = mix(h ^ hash(net));
  h = mix(h ^ hash(output));
  h = mix(h ^ static_cast<uint64_t>(iteration));
  return mix(h ^ static_cast<uint64_t>(timestep));
}

}  // namespace stepnet
