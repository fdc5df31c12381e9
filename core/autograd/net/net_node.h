// NetNode: the derivative of a net that ran on variables.
//
// It keeps what the net's backward part reads; where operators on blobs are differentiated, also the workspace in which
// they left what is no tensor, until it is released. Such a net has first derivatives only.
// Threads: as Node. Hooks that unpack run without a lock, so that they may run passes that come here again, but not in
// the middle of a run in the workspace, which is refused.
#pragma once

#include <mutex>

#include "core/autograd/net/tape_net.h"
#include "stepnet/node.h"
#include "stepnet/saved_value.h"

namespace stepnet::autograd {

// Everything that a run leaves for its derivative.
struct NetSaved {
  // A value that stays with the workspace, or is taken from it by hooks until the node runs.
  struct Kept {
    Tensor* place;
    SavedValue value;
  };
  std::vector<SavedValue> inputs, outputs;  // hidden outputs behind the visible ones; nothing where nothing is read
  std::vector<TensorType> types;            // as NetRecording::types
  std::shared_ptr<NetRunner> runner;        // null unless the workspace is kept
  std::set<std::string> blobs;              // of the workspace when the net has run
  std::vector<Kept> kept;                   // of the workspace, with hooks on saved values; else it keeps them
};

class GraphTask;
struct LevelState;

class NetNode : public Node {
 public:
  NetNode(std::shared_ptr<const TapeNet> plan, const NetRecording& recording, std::vector<Edge> edges, NetDraw draw,
          Place place);

  std::string name() const override { return "the gradient of " + plan_->title(); }
  Gradients apply(Gradients gradients, const NodeRun& run) override;
  void release() override;

  void keep(NetSaved saved, std::vector<TensorType> outputs);  // once, when the net has run
  // Tells a capture of which values the node keeps the types; `names`: of the net's blobs.
  void note_types(TapeCapture& capture, const std::map<std::string, std::string>& names) const;
  // Says that inputs have tangents of that level: the gradients cannot have any, as what is kept has none.
  void set_moving(std::shared_ptr<LevelState> level);
  // For looking at what is kept, and for hooks on it; those of a place where nothing is saved hold nothing.
  SavedValue& saved_input(int i) { return saved_.inputs[i]; }
  SavedValue& saved_output(int k) { return saved_.outputs[k]; }

 private:
  class Turn;
  void check_moving(const Gradients& gradients) const;
  SavedValue* find(const TapeSource& value);  // null if it is none that is saved
  Variable read(const TapeSource& value, const Gradients& gradients);
  bool has_packed();
  void let_go_of(const TapeSource& value);
  std::vector<Variable> run_operators(const NetGradient& gradient, Gradients& gradients, const NodeRun& run);
  std::vector<Variable> run_in_turn(const NetGradient& gradient, Gradients& gradients, bool keep_saved);
  std::vector<Variable> run_in_workspace(const NetGradient& gradient, const std::vector<Variable>& inputs,
                                         bool keep_saved);
  std::vector<Tensor> unpack_kept();
  std::vector<Tensor*> kept_places();
  void fill_workspace(const NetGradient& gradient, const std::vector<Variable>& inputs, Workspace& workspace) const;
  void settle_workspace(const NetGradient& gradient, Workspace& workspace) const;
  std::vector<Tensor> run_kept(const NetGradient& gradient, const std::vector<Variable>& inputs, bool keep_saved);

  std::shared_ptr<const TapeNet> plan_;
  const NetRecording& recording_;
  NetDraw draw_;
  std::mutex lock_;  // of what is saved
  NetSaved saved_;
  std::vector<std::shared_ptr<LevelState>> levels_;  // under lock_
  bool released_ = false;
  std::mutex workspace_lock_;           // held while a pass runs in the workspace
  const GraphTask* at_work_ = nullptr;  // that pass; under lock_
};

}  // namespace stepnet::autograd
