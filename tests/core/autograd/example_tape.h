// An operator's example on the tape, with any of its inputs requiring gradients.
#pragma once

#include <string>
#include <vector>

#include "core/gradcheck/runs.h"
#include "stepnet/engine.h"
#include "stepnet/record.h"

namespace stepnet::autograd::testing {

// Where an interior variable comes from that has no history: gradients end here. Unlike a leaf's accumulator it does
// not keep the value.
class Source : public Node {
 public:
  explicit Source(const Tensor& value) : Node({}, {TensorType::of(value.dtype(), value.shape())}, Place::here()) {}
  std::string name() const override { return "Source"; }
  Gradients apply(Gradients, const NodeRun&) override { return {}; }
};
Variable interior(Tensor value);

// Per input of an operator.
using Mask = std::vector<bool>;

struct TapeRun {
  std::vector<Variable> inputs, outputs;
  std::vector<Edge> edges;  // per input: where its gradient goes
};

// One operator with its values.
class ExampleTape {
 public:
  static constexpr uint64_t kSeed = 1;

  explicit ExampleTape(GradientSubject subject);
  // The same with an output in place of an input.
  ExampleTape in_place(int input, int output) const;

  const GradientSubject& subject() const { return subject_; }
  const OperatorDef& def() const { return subject_.net.op(0); }
  const OpSpec& spec() const { return op_->spec(); }
  int overwritten_by(int input) const;                                        // the output, or -1
  const std::vector<int>& differentiable() const { return differentiable_; }  // inputs
  const std::string& name(int input) const { return def().input(input); }
  Mask only(const std::vector<int>& inputs) const;  // as a mask
  std::vector<Mask> subsets() const;                // of the differentiable ones; the empty one too

  // On copies of the feeds; those that need a gradient are interior.
  TapeRun run(const Mask& needs) const { return run(needs, subject_.feeds); }
  TapeRun run(const Mask& needs, const NamedTensors& values) const;
  std::vector<Variable> make_inputs(const Mask& needs, const NamedTensors& values) const;
  TapeRun run_on(std::vector<Variable> inputs) const;
  GradientProgram program(const Mask& wanted, const Mask& present) const;
  const Mask& all_outputs() const { return signature_.outputs; }  // those that are not left out

 private:
  GradientSubject subject_;
  EagerOp::Signature signature_;
  std::shared_ptr<const EagerOp> op_;
  std::vector<int> differentiable_;
};

// An operator's examples that are one operator on tensors. Where there is none, its calls in the nets of examples, and
// in the gradients, and their gradients, of other operators' examples.
const std::vector<ExampleTape>& example_tapes(const std::string& type);
// All operators on tensors, by name, without those of tests that have mistakes.
std::vector<std::string> tensor_types();

// The gradients of the sum of weights .* outputs by some inputs: dense, zeros where there is none. `recording`: they
// can be differentiated.
std::vector<Variable> tape_gradients(const ExampleTape& tape, const TapeRun& run, const std::vector<Variable>& weights,
                                     const std::vector<int>& wanted, bool recording = false);
// Normal numbers for each of the subject's outputs.
std::vector<Variable> random_weights(const ExampleTape& tape, bool need_gradients = false);

// "" or where two tensors of doubles differ by more than the tolerance, of the largest of the second or of 1.
std::string difference(const Tensor& a, const Tensor& b, double tolerance);

}  // namespace stepnet::autograd::testing
