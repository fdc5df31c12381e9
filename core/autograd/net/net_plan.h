// NetPlan: a net as the tape runs it: what recording it must keep, and its gradient nets.
//
// The node of a run has the net's outputs, and behind them as hidden outputs the values in between that its backward
// part reads. A gradient net is the backward part of the static gradient pass, for the inputs whose gradients are
// wanted and the outputs, hidden ones too, that have one. It is a NetPlan itself, so that running it can be recorded
// and differentiated in turn.
// Threads: immutable but for what is found out once and kept, which any thread may add.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/autograd/net/net_runner.h"
#include "core/autograd/net/net_turns.h"
#include "core/autograd/variable.h"
#include "core/net/versioned_net.h"

namespace stepnet::autograd {

class NetPlan;

// Where a gradient net finds a value, or where a gradient is found when it has run.
struct NetValue {
  enum class Kind : uint8_t {
    none,
    input,      // of the forward net
    output,     // of the node, hidden ones too
    gradient,   // of such an output
    type,       // nothing but the type of a blob; `index` is its place in NetRecording::types
    workspace,  // what the forward run left in its workspace
    made        // an output of the gradient net
  };
  Kind kind = Kind::none;
  int index = 0;
};

struct NetGradient {
  std::shared_ptr<const NetPlan> plan;  // null if no operator runs
  std::vector<NetValue> inputs;         // of the plan
  struct Result {
    NetValue dense, indices, values;
  };
  std::vector<Result> results;  // per input of the forward net
};

using Mask = std::vector<bool>;

// What a run is to keep for its backward pass.
struct NetRecording {
  Mask needs;                       // per input
  Mask saves_input, saves_output;   // outputs: the visible ones
  std::vector<std::string> hidden;  // saved as well
  NetTurns hidden_turns;            // in the forward net
  Mask saved_late;                  // per hidden value: only when the net is done, as another name shows its bytes
  Mask depends;                     // per output, hidden ones behind: computed from an input that needs a gradient
  std::vector<std::string> types;   // blobs of which the type alone is read
  std::set<std::string> kept;       // every blob whose value is read
  bool keeps_workspace = false;     // operators on blobs are differentiated, and find there what they kept
  mutable NetRunners runners;
  mutable std::mutex mutex;
  mutable std::map<std::tuple<Mask, Mask, bool>, std::unique_ptr<NetGradient>> gradients;
};

// The draws of a run's random operators.
struct NetDraw {
  uint64_t seed = 1;
  int64_t number = 0;
};

class NetPlan : public std::enable_shared_from_this<NetPlan> {
 public:
  // Throws Error if the net is wrong or reads what is neither written nor an input.
  NetPlan(NetDef net, std::vector<std::string> inputs, std::vector<std::string> outputs);

  const NetDef& net() const { return net_; }
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  std::string title() const;  // such as `net "decoder"`
  bool overwrites(size_t input) const { return overwritten_[input]; }
  // An input or output, which a node saves as such if it is read.
  bool is_saved_by_name(const std::string& name) const;
  bool has_objects() const { return has_objects_; }  // an operator on blobs: what is not a tensor may be among them
  bool draws() const { return draws_; }              // an operator may be random
  // Errors of a run name this place, unless they name another.
  std::vector<Variable> run(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;
  // The outputs of a run that is not recorded. Each input is asked for right before the first operator that names it,
  // and dropped when the last one has read it.
  using TakeInput = std::function<Tensor(size_t input)>;
  std::vector<Tensor> run_taking(const TakeInput& take, const NetDraw& draw, Place place) const;

  // `differentiable`: the outputs that may get a gradient. Throws Error if one that depends on what needs a gradient
  // cannot be differentiated.
  const NetRecording& recording(const Mask& needs, const Mask& differentiable) const;
  // `present`: per output of the node. `recorded`: the gradient net can be differentiated, so it writes no blob twice.
  const NetGradient& gradient(const NetRecording& recording, const Mask& wanted, const Mask& present,
                              bool recorded) const;

 private:
  struct Reads;
  std::set<VersionedBlob> dependents(const Mask& wanted) const;
  bool is_in(const std::set<VersionedBlob>& blobs, const std::string& name) const;
  bool reaches_output(const Mask& needs) const;  // one of these inputs
  bool is_input(const std::string& name) const;
  std::string given_name(const std::string& output) const;
  Reads backward_part(const Mask& wanted, const std::vector<std::string>& targets) const;
  std::unique_ptr<NetRecording> make_recording(const Mask& needs, const Mask& differentiable) const;
  std::unique_ptr<NetGradient> make_gradient(const NetRecording& recording, const Mask& wanted, const Mask& present,
                                             bool recorded) const;
  NetValue find(const NetRecording& recording, const std::map<std::string, int>& given, const std::string& name,
                bool by_value) const;
  void check_inputs(std::span<const Variable> inputs) const;
  void feed(NetRunner& runner, std::span<const Variable> inputs) const;
  struct Made;
  Made run_tensors(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;
  Made run_objects(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;
  std::vector<Variable> run_checked(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;

  NetDef net_;
  std::vector<std::string> inputs_, outputs_;
  VersionedNet versions_;
  Mask overwritten_;  // per input: the net writes to its bytes
  NetTurns turns_;    // of the inputs
  bool has_objects_ = false, draws_ = false;
  mutable NetRunners runners_;  // of runs that are not recorded
  mutable std::mutex mutex_;
  mutable std::map<std::pair<Mask, Mask>, std::unique_ptr<NetRecording>> recordings_;
};

}  // namespace stepnet::autograd
