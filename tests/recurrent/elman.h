// The cell of many tests: h = tanh(W x + b + U h_prev + d), with X [T, B, 2] and a state of 3.
//
// Threads: pure functions.
#pragma once

#include "tests/recurrent/unrolled.h"

namespace stepnet::testing {

inline const Lines kElman = {"s = FC(x, W, b) axis=2", "r = FC(h_prev, U, d) axis=2", "p = Sum(s, r)", "h = Tanh(p)"};
// And y = V h + e, [4].
inline const Lines kElmanWithOutput = {kElman[0], kElman[1], kElman[2], kElman[3], "y = FC(h, V, e) axis=2"};

inline Feeds elman_feeds(int64_t steps, int64_t batch, const Shape& initial, uint64_t seed = 1) {
  return {{"X", normal<double>({steps, batch, 2}, seed)}, {"h0", normal<double>(initial, seed + 1)},
          {"W", normal<double>({3, 2}, seed + 2)},        {"U", normal<double>({3, 3}, seed + 3)},
          {"b", normal<double>({3}, seed + 4)},           {"d", normal<double>({3}, seed + 5)}};
}

inline Feeds elman_feeds_with_output(int64_t steps, int64_t batch) {
  Feeds feeds = elman_feeds(steps, batch, {batch, 3});
  feeds.emplace_back("V", normal<double>({4, 3}, 7));
  feeds.emplace_back("e", normal<double>({4}, 8));
  return feeds;
}

}  // namespace stepnet::testing
