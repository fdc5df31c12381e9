// The arguments of SumElements, SumSqrElements and their gradient; see sum_elements.cc. Threads: pure functions.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct SumArgs {
  bool average = false;
};

inline double sum_divisor(const SumArgs& a, size_t size) {
  return a.average && size > 0 ? static_cast<double>(size) : 1;
}

}  // namespace stepnet
