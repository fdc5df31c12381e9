// Segments for a number of bytes: which segments of timesteps recurrent networks run by (recurrent/network/segments.h),
// so that what a run takes stays within a budget at the least work.
//
// A choice is measured by a dry run (core/tensor/dry_device.h), so its bytes are those of the real run. Segments of one
// block, two, four and so on are tried. The room that a size leaves within the budget is what segments are kept in and
// states are saved in; of all sizes that fit, the one with the fewest floating-point operations is taken, and among
// those the largest segments. For its size the plan is the best one (recurrent/network/segment_plan.h). Threads: pure
// functions but for what `measure` does.
#pragma once

#include <cstdint>
#include <functional>

#include "recurrent/network/segments.h"
#include "stepnet/op_spec.h"

namespace stepnet {

// What a run with that choice would take.
struct SegmentFigures {
  int64_t peak = 0;  // bytes
  double flops = 0;
};
using MeasureSegments = std::function<SegmentFigures(const SegmentChoice&)>;

struct SegmentQuestion {
  int64_t budget = 0;            // bytes
  int64_t steps = 0, batch = 0;  // T and B of the longest network
  int64_t networks = 1;          // that share the room
};

struct SegmentAnswer {
  SegmentChoice choice;
  SegmentFigures figures;
  bool fits = false;
  int64_t least = 0;      // bytes that some choice needs, and none less
  SegmentFigures in_one;  // without segments
};

// The best choice within the budget, or, if none fits, the one that takes least.
SegmentAnswer best_segments(const SegmentQuestion& question, const MeasureSegments& measure);

// Gives the choice to every RecurrentNetwork of a net in full form; takes `memory_budget_bytes` away.
void apply_segments(NetDef& net, const SegmentChoice& choice);

// The choice for a RecurrentNetwork whose argument `memory_budget_bytes` is `budget`: the most bytes that it and its
// gradient, of everything that has one, take at a time beside their inputs and the gradients that they are given.
// Throws Error that says the smallest budget if none fits.
SegmentChoice segments_within(int64_t budget, const BlobCall& call);

}  // namespace stepnet
