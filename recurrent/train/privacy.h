// What private training (OptimizerOptions::dp_clip, dp_noise) promises.
//
// Every step adds Gaussian noise to a sum to which each stream adds a vector of a bounded norm, and every stream takes
// part in every step. So that of k steps with noise s is the Gaussian mechanism with noise s / sqrt(k), whose delta for
// an epsilon is known exactly:
//   delta = Phi(1 / (2 s) - epsilon s) - exp(epsilon) Phi(-1 / (2 s) - epsilon s)
// Two sets of texts count as neighbours if one has a stream whose steps add nothing where the other has one that adds.
// Sources: B. Balle, Y.-X. Wang, Improving the Gaussian mechanism for differential privacy, 2018, theorem 8; J. Dong,
// A. Roth, W. Su, Gaussian differential privacy, 2019, corollary 3.3.
// Threads: pure functions.
#pragma once

#include <cstdint>

namespace stepnet {

double gaussian_delta(double noise, double epsilon);
// The least epsilon for `delta` after so many steps, rounded up; infinity without noise, 0 before the first step.
double gaussian_epsilon(double noise, int64_t steps, double delta);

}  // namespace stepnet
