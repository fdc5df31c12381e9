// TapeNet: a net as the tape runs it: what recording it must keep, and its gradient nets.
//
// The node of a run has the net's outputs, and after them as hidden outputs the values in between that its backward
// part reads. A gradient net is the backward part of the static gradient pass, for the inputs whose gradients are
// wanted and the outputs, hidden ones too, that have one. It is a TapeNet itself, so that running it can be recorded
// and differentiated in turn. Threads: a TapeNet is immutable but for what is found out once and kept, which any thread
// may add; a NetRunner belongs to one thread at a time.
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

#include "core/net/dataflow.h"
#include "stepnet/net.h"
#include "stepnet/proto/net.pb.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

// At which operators of a net values come and go, so that none is in memory longer than the net needs it. By operator:
// which of some blobs, by their places in a list of names, have that turn there.
struct NetTurns {
  std::vector<std::vector<size_t>> first_named;   // as an input or an output
  std::vector<std::vector<size_t>> last_written;  // not of one that no operator writes
  // The last time that its value is read or written. A shape may be read after that.
  std::vector<std::vector<size_t>> last_used;
};

// Finds the turns of the blobs that the net's operators name; others have none.
NetTurns net_turns(const NetDef& net, const std::vector<std::string>& names);

// True if the bytes of the blob may be seen under another name of the net, by which they may be overwritten.
bool may_have_alias(const NetDef& net, const std::string& name);

// A net bound to a workspace of its own.
class NetRunner {
 public:
  NetRunner(const NetDef& net, const NetOptions& options);
  Workspace& workspace() { return workspace_; }
  Tensor& input(size_t place) { return inputs_[place]->tensor(); }  // by its place among the net's external inputs
  void run(uint64_t seed, int64_t iteration, TensorPacker* packer = nullptr, NetObserver* observer = nullptr);
  // Releases everything in the workspace.
  void clear();

 private:
  Workspace workspace_;
  Net net_;
  std::vector<Blob*> blobs_;  // all that the net names
  std::vector<Blob*> inputs_;
};

// The runners of one net that wait to run again; they are taken and put back under a lock.
class NetRunners {
 public:
  std::unique_ptr<NetRunner> take(const NetDef& net, const NetOptions& options);
  void put_back(std::unique_ptr<NetRunner> runner);  // after clear()

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<NetRunner>> waiting_;
};

class TapeNet;

// Where a gradient net finds a value, or where a gradient is found when it has run.
struct TapeSource {
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
  std::shared_ptr<const TapeNet> plan;  // null if no operator runs
  std::vector<TapeSource> inputs;       // of the plan
  struct Result {
    TapeSource dense, indices, values;
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
  std::vector<std::string> types;   // blobs that are read, of which some gradients read the type alone
  std::set<std::string> kept;       // every blob whose value is read
  bool keeps_workspace = false;     // operators on blobs are differentiated, and find there what they kept
  mutable NetRunners runners;
  mutable std::mutex mutex;
  mutable std::map<std::tuple<Mask, Mask, bool>, std::unique_ptr<NetGradient>> gradients;
};

// The net with forward mode: its inputs, and behind them the tangents of those that move; its outputs, and behind them
// tangents.
struct NetTangents {
  std::shared_ptr<const TapeNet> plan;
  // Per output of the net: where its tangent is: an output of the plan, or an input; `none`: it is zero.
  std::vector<TapeSource> results;
};

// The draws of a run's random operators.
struct NetDraw {
  uint64_t seed = 1;
  int64_t number = 0;
};

class TapeNet : public std::enable_shared_from_this<TapeNet> {
 public:
  // Throws Error if the net is wrong or reads what is neither written nor an input.
  TapeNet(NetDef net, std::vector<std::string> inputs, std::vector<std::string> outputs);

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
  int value_after(const std::string& name) const;
  std::set<int> dependents(const Mask& wanted) const;
  bool is_in(const std::set<int>& values, const std::string& name) const;
  bool reaches_output(const Mask& needs) const;  // one of these inputs
  bool is_input(const std::string& name) const;
  std::string given_name(const std::string& output) const;
  Reads backward_part(const Mask& wanted, const std::vector<std::string>& targets) const;
  std::unique_ptr<NetRecording> make_recording(const Mask& needs, const Mask& differentiable) const;
  std::unique_ptr<NetGradient> make_gradient(const NetRecording& recording, const Mask& wanted, const Mask& present,
                                             bool recorded) const;
  TapeSource find(const NetRecording& recording, const std::map<std::string, int>& given, const std::string& name,
                  bool by_value) const;
  void check_inputs(std::span<const Variable> inputs) const;
  void feed(NetRunner& runner, std::span<const Variable> inputs) const;
  struct Made;
  Made run_tensors(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;
  Made run_objects(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;
  std::vector<Variable> run_checked(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;
  std::vector<Variable> run_moving(std::span<const Variable> inputs, const NetDraw& draw, Place place) const;
  const NetTangents& tangents(const Mask& moved) const;
  NetTangents make_tangents(const Mask& moved) const;

  NetDef net_;
  std::vector<std::string> inputs_, outputs_;
  BoundNet bound_;
  Mask overwritten_;  // per input: the net writes to its bytes
  NetTurns turns_;    // of the inputs
  bool has_objects_ = false, draws_ = false;
  mutable NetRunners runners_;  // of runs that are not recorded
  mutable std::mutex mutex_;
  mutable std::map<std::pair<Mask, Mask>, std::unique_ptr<NetRecording>> recordings_;
  mutable std::map<Mask, std::unique_ptr<NetTangents>> tangents_;
};

}  // namespace stepnet::autograd
