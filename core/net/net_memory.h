// NetMemory: what the intermediates of a net take whose memory is planned (core/net/net_arena.h), in bytes.
//
// Threads: a value.
#pragma once

#include <cstdint>

namespace stepnet {

struct NetMemory {
  bool planned = false;      // they are in the block
  int64_t values = 0;        // that have a place
  int64_t written_over = 0;  // of these, that take the place of an input that they are computed from
  int64_t apart = 0;         // the sum of all, each by itself
  int64_t most_alive = 0;    // the largest sum of those alive at one operator: no block is smaller
  int64_t block = 0;
};

}  // namespace stepnet
