// A training step as a NetSession (core/estimate/session.h): what `stepnet train` runs, with its parameters, states
// that are carried from step to step, and the optimizer's state, to be estimated or measured.
//
// Threads: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/estimate/session.h"
#include "recurrent/train/training_net.h"

namespace stepnet {

struct TrainingEstimate {
  Model model;  // of a net that has no block [stepnet.model]: model_of()
  OptimizerOptions optimizer = {};
  std::map<std::string, TensorType> feeds = {};       // beside the model's input and target
  std::map<std::string, TensorType> parameters = {};  // beside those that the model's init net makes
  const NetDef* net = nullptr;                        // runs in place of the one that is built from the model
  bool plan_memory = false;  // intermediates have places in one block, as `stepnet train` runs it
  Device device = {};        // of all of it; a net that asks for a GPU gets the CPU if that is it
};

// The net, whose recurrent operators are in short form, with `loss` to be differentiated; "" for its only output that
// nobody reads. Throws Error if there are several.
Model model_of(const NetDef& net, const NetDef& init, const std::string& loss);

// Throws Error with the figures if a training step of the model needs more CPU memory than is left. What cannot be
// known without data is left to the run.
void require_training_fits(const Model& model, const OptimizerOptions& optimizer);

// Makes the session and runs the init net. Throws Error that lists the blobs whose types are missing.
std::unique_ptr<NetSession> training_session(const TrainingEstimate& training);

}  // namespace stepnet
