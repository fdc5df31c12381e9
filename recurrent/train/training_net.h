// The training net: forward, backward, clipping, learning rate and one optimizer operator per parameter, as one NetDef.
//
// Blobs that training adds have names that start with "train/". Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/passes/memory_values.h"
#include "recurrent/form/sensitivities.h"
#include "recurrent/train/model.h"
#include "stepnet/gradients.h"
#include "stepnet/tensor.h"
#include "stepnet/train_options.h"

namespace stepnet {

struct TrainingNet {
  NetDef net;
  // Blobs that must exist, beside parameters, carried states, input and target, before the net is built, with their
  // first values; those of the optimizer are zeros like their parameter.
  std::vector<std::pair<std::string, Tensor>> first_values;
  std::vector<std::string> trained;    // parameters that the loss depends on
  std::vector<std::string> gradients;  // of each of them
  // The same as updates read them: clipped, and of several batches the mean. None where ranks have parts of them.
  std::vector<std::string> used;
  GradientResult differentiated;
  Sensitivities sensitivities;      // that are carried beside the states, if the model says so
  std::string rate = "train/rate";  // as the operator wants it, negative where the operator adds its step
  // The first blob that is made after all of `used`, and before the updates.
  std::string planned_rate = rate;
  std::string iteration = "train/iteration";
  // Of a net with a scaled loss; the blobs hold the next step's scale, and whether this step's gradients are finite.
  std::string scale = "train/loss_scale", finite = "train/finite";
  bool scaled = false;
  std::string share = "train/share";  // of several ranks: what the batch is of that of all
  // Of several ranks that share the optimizer's state out: by blob of first_values, the parameters of whose state it
  // holds this rank's part, and how the state of a parameter P is called where all of it is: "train/P" and `suffix`.
  struct SharedState {
    std::string suffix;
    std::vector<std::string> parameters;
  };
  std::map<std::string, SharedState> shared_states;
  std::string factor;                           // of policy plateau: what the rate is multiplied by
  std::map<std::string, std::string> averages;  // by parameter, if they are kept
};

// A step whose gradients are not finite is to leave parameters, the optimizer's state and its iteration as they are, so
// a net with a scaled loss is run in two parts: the second, from this operator on, if they are. So is one that
// accumulates gradients: the second after the last of the batches. -1: in one.
int update_begin(const NetDef& net);

// Takes the operators from `begin` on, as update_begin says, out of the net, and returns them as a net of its own.
NetDef take_update(NetDef& net, int begin, const TrainingNet& training);
// What the first part leaves for the second, beside what stays anyway; bytes that nobody reads behind that.
std::set<std::string> left_for_update(const TrainingNet& training);

// What the recomputation of a training net asks (core/passes/recompute.h): the types of all blobs that are there before
// it is built.
MemoryQuestion training_question(const Model& model, const NetDef& net, const Workspace& blobs);

// The net, with what the model says is to run again.
NetDef with_recomputation(const TrainingNet& training, const Model& model, const Workspace& blobs);

// `iterations`: the end of the schedule, for policy poly. `parameters`: where the parameters are. `fed`: types of what
// is read, beside those of the model's batches.
TrainingNet build_training_net(const Model& model, const std::vector<std::string>& parameters,
                               const Workspace& workspace, const OptimizerOptions& options, int64_t iterations,
                               const std::map<std::string, TensorType>& fed = {});

}  // namespace stepnet
