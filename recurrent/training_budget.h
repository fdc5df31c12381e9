// A training step within a number of bytes.
//
// Threads: pure functions.
#pragma once

#include "recurrent/segment_budget.h"
#include "recurrent/training_estimate.h"

namespace stepnet {

// The most bytes that a training step takes as `stepnet train` runs it: with the intermediates in one block.
int64_t training_peak(const TrainingEstimate& training);

// The segments that the model's recurrent networks have to run by, so that a training step takes at most `budget` bytes
// of tensors: parameters, optimizer, inputs and everything else. By dry runs, so the step keeps to it to the byte.
// Throws Error if no choice does; it says the smallest budget.
SegmentAnswer fit_training(const TrainingEstimate& training, int64_t budget);

}  // namespace stepnet
