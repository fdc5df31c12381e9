// The training net: forward, backward, clipping, learning rate and one optimizer operator per parameter, as one NetDef.
//
// Blobs that training adds have names that start with "train/". Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/passes/gradients.h"
#include "core/passes/memory_values.h"
#include "core/tensor/tensor.h"
#include "recurrent/train/model.h"

namespace stepnet {

struct OptimizerOptions {
  std::string optimizer = "adam";                     // one of optimizer_names()
  double lr = 0.003;                                  // always positive, whatever sign the operator wants
  std::string lr_policy = "fixed";                    // of the operator LearningRate
  double lr_gamma = 0.5;                              // step, exp, inv
  double lr_power = 1;                                // inv, poly
  int64_t lr_stepsize = 1000;                         // step
  int64_t lr_warmup = 100;                            // linearWarmup: iterations
  double momentum = 0.9;                              // momentum, nesterov
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam and adamw; epsilon also adagrad and rmsprop
  double weight_decay = 0.01;                         // adamw
  double clip = 5;                                    // of the norm of all gradients together; 0: off
  double loss_scale = 0;      // gradients are those of the loss times this, and divided by it; 0: they are the loss's
  bool dynamic_scale = true;  // the scale is halved by a step whose gradients overflow, doubled by 2000 that do not
};

std::vector<std::string> optimizer_names();

// Throws Error on an unknown optimizer or a number out of range. Policies are checked by their operator.
void check_optimizer(const OptimizerOptions& options);

struct TrainingNet {
  NetDef net;
  // Blobs that must exist, beside parameters, carried states, input and target, before the net is built, with their
  // first values; those of the optimizer are zeros like their parameter.
  std::vector<std::pair<std::string, Tensor>> first_values;
  std::vector<std::string> trained;    // parameters that the loss depends on
  std::vector<std::string> gradients;  // of each of them
  GradientResult differentiated;
  std::string rate = "train/rate";  // as the operator wants it, negative where the operator adds its step
  std::string iteration = "train/iteration";
  // Of a net with a scaled loss; the blobs hold the next step's scale, and whether this step's gradients are finite.
  std::string scale = "train/loss_scale", finite = "train/finite";
  bool scaled = false;
};

// A step whose gradients are not finite is to leave parameters, the optimizer's state and its iteration as they are, so
// a net with a scaled loss is run in two parts: the second, from this operator on, if they are. -1: in one.
int update_begin(const NetDef& net);

// What the recomputation of a training net asks (core/passes/recompute.h): the types of all blobs that are there before
// it is built.
MemoryQuestion training_question(const Model& model, const NetDef& net, const Workspace& blobs);

// The net, with what the model says is to run again.
NetDef with_recomputation(const TrainingNet& training, const Model& model, const Workspace& blobs);

// `iterations`: the end of the schedule, for policy poly. `parameters`: where the parameters are.
TrainingNet build_training_net(const Model& model, const std::vector<std::string>& parameters,
                               const Workspace& workspace, const OptimizerOptions& options, int64_t iterations);

}  // namespace stepnet
