// TrainingSession: a model in training, and everything that its arithmetic depends on.
//
// A step reads the next batch, runs the training net, and hands the carried states on. With a scaled loss, a step whose
// gradients are not finite changes nothing but the scale. What save() returns is all that
// restore() needs to go on to the same bits, on the same number of threads.
// Threads: one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/data/batch_source.h"
#include "core/io/text_stream.h"
#include "recurrent/train/carried_states.h"
#include "recurrent/train/training_net.h"
#include "stepnet/net.h"

namespace stepnet {

// What to do about a loss or a parameter that is not finite.
constexpr const char* kFiniteFix =
    "use a smaller learning rate, or clip the gradients at a smaller norm; --detect-anomaly names the operator";

using GradientFunction = std::function<void(const std::string& parameter, const Tensor& gradient)>;

class TrainingSession {
 public:
  // Runs the init net. `iterations`: the end of the schedule. `plan_memory`: intermediates share memory.
  TrainingSession(Model model, OptimizerOptions optimizer, std::unique_ptr<BatchSource> source, uint64_t seed,
                  int64_t iterations, bool plan_memory = true);
  // On a text.
  TrainingSession(const Model& model, OptimizerOptions optimizer, TextStreams streams, uint64_t seed,
                  int64_t iterations, bool plan_memory = true);

  // The loss in nats; throws Error if it is not finite, unless that may be the scale's fault. A packer takes what
  // recurrent networks keep. `detect_anomaly`: throws Error that names the first operator whose output is not finite
  // while its inputs are (core/operator/anomaly.h); of a scaled loss those before the loss only, unless the scale is
  // below 1. `gradients` is called for each parameter before its update, unless that is skipped.
  double step(Profiler* profiler = nullptr, TensorPacker* packer = nullptr, bool detect_anomaly = false,
              const GradientFunction& gradients = {});
  // Of steps and of what they run: RunContext::warn.
  void warn_by(std::function<void(const std::string&)> warn) { warn_ = std::move(warn); }
  // What else a step adds up over the ranks together with its loss, so that they wait for each other once: it asks each
  // for its values, equally many, when its own net has run.
  void sum_with_loss(std::function<std::vector<double>()> values) { beside_ = std::move(values); }
  const std::vector<double>& summed_with_loss() const { return summed_; }     // of the last step
  int64_t iteration() const { return net_->runs() / optimizer_.accumulate; }  // steps so far
  double learning_rate() const;                                               // of the last step, positive
  void multiply_rate(double factor);          // of policy plateau, from the next step on
  bool skipped() const { return skipped_; }   // the last step: gradients overflowed
  double loss_scale() const;                  // for the next step; 0: the loss is not scaled
  void set_schedule_end(int64_t iterations);  // from the next step on

  NetMemory memory() const { return net_->memory(); }  // of the last step
  void let_go_of_memory();                             // of all that a step needs and the next one can make again

  const Model& model() const { return model_; }
  Workspace& parameters() { return parameters_; }  // holds what the init net wrote, and nothing else
  // The parameters as they are to be used: their averages, if these are kept, as of this call.
  Workspace& parameters_to_use();
  const std::vector<std::string>& parameter_names() const { return names_; }
  DType dtype() const { return dtype_; }

  // What of save() is not finite, such as `the parameter "W_x" is nan at [3, 2]`; "" if all of it is. Parameters that
  // start with infinities may have some.
  std::string not_finite() const;
  // The tensors are on the CPU; there they share bytes with the session's until its next step. Of several ranks all
  // must call this, and get the carried states, and the parts of the optimizer's state, of all of them. Of the ranks of
  // a wavefront the first one gets what all have.
  std::map<std::string, Tensor> save() const;
  void restore(const std::map<std::string, Tensor>& saved);  // throws Error if they do not fit

 private:
  void build_net(int64_t iterations);
  void set_share(double share);
  bool shares_batch() const { return model_.ranks && !model_.stage; }
  void save_shared(const std::string& name, const TrainingNet::SharedState& state,
                   std::map<std::string, Tensor>& saved) const;
  void restore_shared(const std::string& name, const TrainingNet::SharedState& state,
                      const std::map<std::string, Tensor>& saved);
  Tensor part_of(const Tensor& all, const Tensor& part) const;
  void update(RunContext& run);
  double run_batch(RunContext& run);
  double sum_over_ranks(double loss);
  bool may_overflow() const;  // gradients, through the scale of the loss
  std::map<std::string, Blob*> saved_blobs() const;

  Model model_;
  OptimizerOptions optimizer_;
  std::unique_ptr<BatchSource> source_;
  Batch batch_;  // the latest
  uint64_t seed_;
  bool plan_memory_;
  std::function<void(const std::string&)> warn_;
  std::function<std::vector<double>()> beside_;
  std::vector<double> summed_;
  Workspace parameters_, workspace_, averages_;
  DType dtype_ = DType::float32;
  std::vector<std::string> names_;
  std::set<std::string> infinite_;  // parameters that the init net makes so
  TrainingNet training_;
  std::unique_ptr<CarriedStates> states_;
  std::unique_ptr<Net> net_, update_;  // the second part of a step (update_begin); else null
  bool skipped_ = false;
};

}  // namespace stepnet
