// OpNode: the derivative of one operator that ran on variables.
#pragma once

#include <mutex>

#include "stepnet/eager_op.h"
#include "stepnet/node.h"
#include "stepnet/saved_value.h"

namespace stepnet::autograd {

class TapeCapture;

class OpNode : public Node {
 public:
  // `needs`: per input, whether it requires a gradient; `recorded`: the derivative of these with every output's.
  OpNode(std::shared_ptr<const EagerOp> op, const EagerGradient& recorded, Flags needs, std::vector<Edge> edges,
         std::vector<TensorType> inputs, std::vector<TensorType> outputs, Place place);

  std::string name() const override;
  std::string forward_name() const override { return op_->type(); }
  Gradients apply(Gradients gradients, const NodeRun& run) override;
  void release() override;
  Flow flow(size_t i) const override;

  const EagerOp& op() const { return *op_; }
  // What the recorded derivative reads, of these; `inputs` are as they were before the operator ran.
  void save(std::span<const Tensor* const> inputs, std::span<const Tensor> outputs);
  // Tells a capture of whose values the node keeps the types.
  void note_types(TapeCapture& capture, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs) const;
  // The same of tangents: those that the inputs had, and those that the outputs have.
  void save_tangents(std::span<const std::shared_ptr<const std::vector<LevelTangent>>> inputs,
                     std::span<const Variable> outputs);
  // For looking at what is kept, and for hooks on it. Null if that value is not saved.
  SavedValue* saved_input(int i) { return find(i); }
  SavedValue* saved_output(int o) { return find(op_->inputs() + o); }
  // The same as a formula reads it, with its history; undefined if that value is not saved. Throws Error once the node
  // has let go of it, or if it is stale.
  Variable read_input(int i);
  Variable read_output(int o);

 private:
  struct Saved {
    int place;  // an input, or behind the inputs an output
    SavedValue value;
  };
  const EagerGradient& derivative(const Flags& wanted, const Flags& present) const;
  SavedValue* find(int place);
  Variable read(int place, const Edge& edge, const std::string& what, std::unique_lock<std::mutex>& lock);
  Variable read_input(int i, std::unique_lock<std::mutex>& lock);
  Variable read_output(int o, std::unique_lock<std::mutex>& lock);
  Variable slot_value(const GradientProgram& program, const GradientProgram::Slot& slot, const Gradients& gradients,
                      std::unique_lock<std::mutex>& lock);

  std::shared_ptr<const EagerOp> op_;
  const EagerGradient* recorded_;
  Flags needs_;
  std::vector<TensorType> input_types_;
  std::vector<Saved> saved_;
  std::mutex lock_;
  bool released_ = false;
};

}  // namespace stepnet::autograd
