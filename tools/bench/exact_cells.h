// The cells once more, in float64 and from plain formulas: what every contender has to agree with.
//
// Threads: for the main thread.
#pragma once

#include "tools/bench/cell_case.h"

namespace stepnet::bench {

// "h_all" and all gradients.
ExactValues exact_results(const CellData& data);

}  // namespace stepnet::bench
