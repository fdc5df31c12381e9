// Between the imitated device and a kernel of timesteps that was compiled for it: what either has of the other.
#pragma once

#include <cstddef>

namespace emulated {

struct LoopIndex {
  unsigned x = 0;
};

// Of the thread that runs; the device writes it whenever it goes on with another one.
struct LoopIndices {
  LoopIndex thread, block, grid, block_size;
};

enum class WarpCall : unsigned { shuffle, product };

// What a thread hands to those of its warp.
struct WarpWords {
  unsigned words[6];
};

struct LoopCalls {
  const char* stacks = nullptr;  // of all threads: what lies there is a thread's own
  size_t stack_bytes = 0;
  void (*read)(const void* at, size_t bytes) = nullptr;
  void (*write)(const void* at, size_t bytes) = nullptr;
  void (*misuse)(const char* what) = nullptr;  // that the compiler has found
  void (*synchronize)() = nullptr;
  const WarpWords* (*exchange)(WarpCall call, const WarpWords& mine) = nullptr;  // of all 32, until the next call
  void (*add_release)(unsigned* to) = nullptr;
  unsigned (*read_acquire)(const unsigned* from) = nullptr;
  char* (*room)() = nullptr;
};

// What a kernel's library exports.
using LoopEnter = LoopIndices*(const LoopCalls& calls);
using LoopRun = void(const void* parameters);  // one thread

}  // namespace emulated
