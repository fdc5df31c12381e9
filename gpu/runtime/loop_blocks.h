// How heads, rows and units are split among blocks, and what lies where in a block's shared memory. Threads: pure
// functions.
#pragma once

#include "gpu/runtime/loop_plan.h"

namespace stepnet::gpu {

// Chooses the split in which a block has the least to do one after the other, of those that fit. What does not fit is a
// LoopRefusal.
void set_blocks(LoopPlan& plan, const LoopLimits& limits);

}  // namespace stepnet::gpu
