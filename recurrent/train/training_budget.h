// A training step within a number of bytes.
//
// First, recurrent networks run by segments of timesteps (recurrent/network/segment_budget.h). If no choice of these
// fits, operators of the forward part run again, too (core/passes/recompute.h). Bytes are those of dry runs of the very
// step, with a thousandth more for later steps, so it keeps to them. All results have the same bits. Threads: pure
// functions.
#pragma once

#include "recurrent/network/segment_budget.h"
#include "recurrent/train/training_estimate.h"

namespace stepnet {

// The most bytes that a training step takes as `stepnet train` runs it: those of its first run, in which each of the
// intermediates has memory of its own until its last reader; later ones have them in one block, and take no more but
// for a thousandth at the most (core/net/net_arena.h).
int64_t training_peak(const TrainingEstimate& training);

struct FittedTraining {
  Model model;                     // with the plan
  SegmentFigures figures, in_one;  // of the plan, and of the model as it was given
};

// The most bytes that predicting a held-out text takes between two steps (recurrent/train/evaluator.h), with what then
// stands of the training.
int64_t validation_peak(const TrainingEstimate& training);

// A plan for which a training step takes at most `budget` bytes of tensors: parameters, optimizer, inputs and
// everything else; and so does a validation, if there is any. Throws Error if there is none; it says the smallest
// budget.
FittedTraining fit_training(const TrainingEstimate& training, int64_t budget, bool validates = false);

}  // namespace stepnet
