// Liveness: values that are never alive at the same time may have the same bytes of one arena.
//
// Time is counted in points, such as the positions of operators that run one after the other. A value is alive from the
// first point at which somebody writes or reads it to the last; what an operator reads and what it writes are alive
// together, so that no kernel writes over its inputs.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stepnet/device.h"

namespace stepnet {

// What the allocator of the CPU hands out for so many bytes.
constexpr int64_t allocated_bytes(int64_t bytes) {
  return static_cast<int64_t>(block_bytes(DeviceKind::cpu, static_cast<size_t>(bytes)));
}

struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = -1;  // both are points at which it is alive; never alive if last < first
};

// Somebody writes or reads the value at that point.
void use_at(Lifetime& value, int point);

struct ArenaPlan {
  std::vector<int64_t> offsets;  // by value; 0 if it has no bytes or is never alive, and so needs no place
  int64_t bytes = 0;             // of the arena
  int64_t most_alive = 0;        // the largest sum of bytes that are alive at one point: no arena is smaller
};

// The bytes that the values take without an arena, each rounded up as the allocator does; throws Error if 64 bits
// cannot count them.
int64_t bytes_apart(std::span<const Lifetime> values);

// Places for all values, such that no two that are alive at the same point overlap. Offsets and sizes are multiples of
// the allocator's 64 bytes. The arena is never larger than bytes_apart(), and the same for the same values.
//
// Values are taken in some order, each at the lowest offset at which it fits between those that live with it; of
// several orders, the one with the smallest arena is taken: large values first, long-lived ones first, those with the
// largest product of both first, by the point where they begin, which is best where all sizes are equal, and those that
// end last first, which suits a net and its gradient: values of the forward pass make room for gradients in the order
// in which these come. More orders, each a change of one before, are tried for `effort`, which counts pairs of values.
// Finding the best of all arrangements is NP-hard; the arena is often as small as most_alive says, which ends the
// search. At most quadratic in the number of values, for each of the orders; more than 4096 values are placed once, as
// they begin to be alive, each in the smallest gap that fits, in n log n. Source: taking large tensors first is the
// scheme "greedy by size for offset calculation" of Y. Pisarchyk and J. Lee, Efficient Memory Management for Deep
// Neural Net Inference, 2020; the other orders are variants of it.
ArenaPlan plan_arena(std::span<const Lifetime> values, int64_t effort = 0);

}  // namespace stepnet
