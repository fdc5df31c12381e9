// Layers of recurrent networks on the tape, run a segment of timesteps after the other.
//
// Each segment is one node, which starts from the last states of the segment before. What a segment keeps for its
// backward pass is let go of when that has run, and can be packed by hooks on saved values before the next segment
// runs forward: beside the sequence, its gradient and the outputs, which are there as a whole, no more than the
// segments at work are in memory. Values are those of the whole but for the rounding of
// products of fewer rows, and gradients of weights but for that of sums over segments.
// Threads: as Variable.
#pragma once

#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

struct SegmentOptions {
  int64_t steps = 0;            // timesteps of a segment; the last may have fewer
  bool sequence_wanted = true;  // output 0, the states of the last layer at all timesteps; else it is undefined
};

// As run(type, inputs, args) of RNN, GRU or LSTM, with their outputs. Throws Error: `bidirectional`, of which one
// direction starts at the end; steps below 1.
std::vector<Variable> run_in_segments(const std::string& type, const std::vector<Variable>& inputs,
                                      const std::vector<Argument>& args, const SegmentOptions& options,
                                      Place place = Place::here());

}  // namespace stepnet::autograd
