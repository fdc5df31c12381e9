// Times of contenders that take turns, so that a change of the machine's speed meets them all.
#pragma once

#include <vector>

#include "tools/bench/lstm_case.h"

namespace stepnet::bench {

struct Times {
  double minimum = 0, median = 0;  // milliseconds
};

// One run of each that does not count, then `rounds` rounds in which each runs once; in the order of the contenders.
std::vector<Times> time_in_turns(const std::vector<Contender*>& contenders, int rounds);

}  // namespace stepnet::bench
