// A training step's memory: the step as a NetSession (core/estimate/session.h), with the parameters, states that are
// carried from step to step, and the optimizer's state that `stepnet train` has, to be estimated or measured; and a
// plan for a number of bytes.
//
// First, recurrent networks run by segments of timesteps (recurrent/network/segment_budget.h). If no choice of these
// fits, operators of the forward part run again, too (core/passes/recompute.h). Bytes are those of dry runs of the very
// step, with a thousandth more for later steps, so it keeps to them. All results have the same bits.
// Threads: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/estimate/session.h"
#include "recurrent/network/segment_budget.h"
#include "recurrent/train/training_net.h"

namespace stepnet {

struct TrainingEstimate {
  Model model;  // of a net that has no block [stepnet.model]: model_of()
  OptimizerOptions optimizer = {};
  std::map<std::string, TensorType> feeds = {};       // beside the model's input and target
  std::map<std::string, TensorType> parameters = {};  // beside those that the model's init net makes
  const NetDef* net = nullptr;                        // runs in place of the one that is built from the model
  bool to_be_planned = false;  // as it is before it is known what runs again (leave_gradients_in_place)
  bool plan_memory = false;    // intermediates have places in one block, as `stepnet train` runs it
  bool in_parts = false;       // the update is a net of its own where `stepnet train` has it so (NetSession::update)
  Device device = {};          // of all of it; a net that asks for a GPU gets the CPU if that is it
};

// The net, whose recurrent operators are in short form, with `loss` to be differentiated; "" for its only output that
// nobody reads. Throws Error if there are several.
Model model_of(const NetDef& net, const NetDef& init, const std::string& loss);

// Throws Error with the figures if a training step of the model needs more CPU memory than is left. What cannot be
// known without data is left to the run.
void require_training_fits(const Model& model, const OptimizerOptions& optimizer);

// Makes the session and runs the init net. Throws Error that lists the blobs whose types are missing.
std::unique_ptr<NetSession> training_net_session(const TrainingEstimate& training);

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
