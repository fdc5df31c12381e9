// All threads of a kernel's blocks at once, as a cooperative launch has them: each is a fiber, which goes on until it
// waits for others.
//
// Nothing is promised about the order, so a seed chooses it: by chance, block by block from either end, with a block or
// with each block's first warp held back. Shared memory begins as NaN. What no order makes right is an error all the
// same (loop_races.h), and so it is if all threads wait for ever.
#pragma once

#include <cstddef>

#include "tests/gpu/emulated/loop_calls.h"

namespace emulated {

// A kernel that was compiled for the imitated device.
struct LoopKernel {
  LoopEnter* enter = nullptr;
  LoopRun* run = nullptr;
};

struct LoopLaunch {
  unsigned blocks = 0, threads = 0;  // of a block
  size_t shared_bytes = 0;           // of a block
  size_t unit = 0;                   // bytes of an element
  unsigned seed = 0;
};

// Throws stepnet::Error if threads touch what they must not, or wait for ever.
void run_loop(const LoopKernel& kernel, const void* parameters, const LoopLaunch& launch);

}  // namespace emulated
