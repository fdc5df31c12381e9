// Sums over timesteps: adding a tensor to another, and rows of one to rows of another.
//
// Threads: pure functions but for what they add to.
#pragma once

#include "stepnet/tensor.h"

namespace stepnet {

// to += from, of one dtype and size; on the CPU `from` may be of a half type where `to` is float32.
void add_elements(const Tensor& from, Tensor to);

// After the timestep t, row t + shift of `to` [rows, B, ...] gets row t + shift - start of `from` added, if that has
// it. `to` may have the latest rows alone, as a link's tensor.
struct RowSum {
  Tensor from, to;
  int64_t start = 0, shift = 0;
  void add(int64_t t, int64_t first, int64_t samples) const;         // of these samples
  void add_elements(int64_t t, int64_t first, int64_t count) const;  // of these elements of the row
};

}  // namespace stepnet
