// Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
//
// A draw is a pure function of a 64-bit key and a 64-bit element index, so it does not depend on threads or on the
// order of operators, and a resumed run continues as if it had never stopped. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace stepnet {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t index);

// The key of one operator's draws.
uint64_t random_key(uint64_t seed, std::string_view net, std::string_view output, int64_t iteration, int64_t timestep);

double random_uniform(uint64_t key, uint64_t index);                          // in [0, 1), 53 bits
double random_normal(uint64_t key, uint64_t index);                           // mean 0, variance 1 (Box and Muller)
int64_t random_int(uint64_t key, uint64_t index, int64_t low, int64_t high);  // in [low, high], both included

}  // namespace stepnet
