// The arguments of UniqueUniformFill, and its draws; see unique_uniform_fill.cc.
#pragma once

#include "operators/loops/fill_shape.h"

namespace stepnet {

struct UniqueArgs : FillShape {
  int64_t min = 0, max = 0;
  int64_t dtype = 0;
};

// Fills y, int32 or int64, with different integers that are not in `avoid`, if there is one; both are on the CPU.
// Throws Error if there are too few.
void draw_unique(const UniqueArgs& args, uint64_t key, const Tensor* avoid, Tensor& y);

}  // namespace stepnet
