// Running a RecurrentNetwork by segments of timesteps, forward and backward; see recurrent/network/segments.h.
//
// Threads: one run at a time.
#pragma once

#include <functional>

#include "core/operator/op_spec.h"
#include "recurrent/network/kept.h"

namespace stepnet {

// The step blobs and tensors that the forward links lead to, with the segment at work for those of its states.
std::map<std::string, LinkTarget> forward_links(const RecurrentScratch& scratch, const Workspace& workspace);

// Whether this run goes by segments, and by which: as the arguments say, or where a packer takes what is kept. False if
// a program that was compiled before does not fit any more.
bool choose_segments(RecurrentScratch& scratch, const BlobCall& call, int64_t steps, int64_t batch);

// After the forward program was compiled: takes its slabs, and plans.
void plan_segments(RecurrentScratch& scratch);

// The forward pass.
void run_segments_forward(RecurrentScratch& scratch, RunContext& run);

// The backward pass: `back` runs the backward program over a range of timesteps with what the forward run kept of it;
// `first` the first time.
using RunBack = std::function<void(const SegmentValues& values, const StepRange& range, bool first)>;
void run_segments_backward(RecurrentScratch& scratch, const Workspace& workspace, RunContext& run, const RunBack& back);

}  // namespace stepnet
