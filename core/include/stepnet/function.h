// Function: an operator of the user's own on the tape, without registering one: a forward and a backward callable.
//
//   // y = exp(x) * s
//   const Function scaled_exp({
//       .name = "ScaledExp",
//       .forward = [](FunctionCall& call) {
//         const Variable e = run("Exp", {call.input(0)})[0];
//         const Variable y = run("Mul", {e, call.input(1)})[0];
//         if (call.needs(0)) call.save("y", y);
//         if (call.needs(1)) call.save("e", e);
//         return std::vector<Variable>{y};
//       },
//       .backward = [](FunctionRun& pass, const Gradients& dy) {
//         Gradients dx(2);
//         if (pass.needs(0)) dx[0] = run("Mul", {dy[0].dense, pass.saved("y")})[0];
//         if (pass.needs(1)) dx[1] = run("Mul", {dy[0].dense, pass.saved("e")})[0];
//         return dx;
//       },
//   });
//   const Variable y = scaled_exp({x, s})[0];
//
// `forward` runs without recording and may do anything. `backward` gets a gradient per output and returns one per
// input; under `create_graph` the operators that it runs are recorded, and saved inputs and outputs have their history.
// A saved value that is neither has none: where it matters for second derivatives, return it as an output.
// Callables must not hold variables that the function overwrites, or the graph owns itself.
// Threads: immutable; the callables may run on any thread, and `backward` on several at once.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stepnet/node.h"
#include "stepnet/saved_value.h"

namespace stepnet::autograd {

class FunctionNode;
struct LevelState;

// One call, as its forward sees it.
class FunctionCall {
 public:
  FunctionCall(std::string name, std::vector<Variable> inputs);

  const std::vector<Variable>& inputs() const { return inputs_; }
  const Variable& input(int i) const { return inputs_[i]; }
  // Whether a pass may ask for the gradient of input `i`: save only what such gradients take.
  bool needs(int i) const { return needs_[i]; }
  // Keeps an input, an output, or any other value for the backward; an undefined one comes back undefined. It must not
  // be written in place until then. Throws Error if there is one of that name.
  void save(const std::string& name, const Variable& value);
  // Says, before it is done, that the function writes to this input in place; the input must be an output then.
  // Throws Error if it may not be written.
  void overwrites(const Variable& input);
  // No gradient flows to this output. So it is of itself for elements that are no floating-point numbers.
  void no_gradient(const Variable& output) { constants_.push_back(output); }

  std::any data;  // anything else for the backward; kept as long as the graph

 private:
  friend class Function;
  struct Saved {
    std::string name;
    Variable value;
  };
  bool is_overwritten(const Variable& variable) const;
  bool is_constant(const Variable& output) const;
  Variable show(const Variable& output, const std::shared_ptr<FunctionNode>& node, int index) const;
  void check_writes(const std::vector<uint64_t>& before, const std::vector<Variable>& outputs) const;

  std::string name_;
  std::vector<Variable> inputs_;
  bool recording_;  // where it was called
  std::vector<bool> needs_;
  std::vector<Saved> saved_;
  std::vector<Variable> overwritten_, constants_;
};

// One run of its backward.
class FunctionRun {
 public:
  FunctionRun(FunctionNode& node, const NodeRun& run) : node_(node), run_(run) {}

  bool needs(int i) const { return run_.wanted[i]; }    // this pass asks for the gradient of input `i`
  bool is_recording() const { return run_.recording; }  // gradients of gradients will be asked for
  Variable saved(std::string_view name) const;          // throws Error if nothing is, or if it is stale or let go of
  Variable take_saved(std::string_view name);           // and lets go of it now, unless the graph is kept
  std::any& data() const;

 private:
  FunctionNode& node_;
  const NodeRun& run_;
};

class Function {
 public:
  struct Spec {
    std::string name;
    std::function<std::vector<Variable>(FunctionCall&)> forward;
    // Gradients that did not arrive are zeros, or undefined without `zeros_for_absent`. Those that it returns may be
    // undefined; undefined ones behind the last input do not matter. Without a backward its node fails when it runs.
    std::function<Gradients(FunctionRun&, const Gradients&)> backward;
    // Forward mode: the tangents of the outputs, undefined where they are zero, from the inputs, the outputs, and the
    // tangents of the inputs, undefined where they are zero. Without it, an input that has a tangent is an Error. The
    // backward must compute by operators where its results' tangents matter.
    std::function<std::vector<Variable>(const std::vector<Variable>& inputs, const std::vector<Variable>& outputs,
                                        const std::vector<Variable>& tangents)>
        tangents = nullptr;
    bool zeros_for_absent = true;
    bool once_differentiable = false;  // the backward is not recorded, and differentiating its results is an Error
  };
  explicit Function(Spec spec) : spec_(std::make_shared<const Spec>(std::move(spec))) {}

  // Calls the forward; outputs are new variables, but for overwritten inputs. Throws Error: an input written to without
  // saying so, and what the forward throws.
  std::vector<Variable> operator()(const std::vector<Variable>& inputs, Place place = Place::here()) const;

 private:
  std::vector<Variable> compute(const std::vector<Variable>& inputs, Place place) const;
  std::vector<Variable> compute_moving(const std::vector<Variable>& inputs, Place place) const;
  std::shared_ptr<FunctionNode> record(FunctionCall& call, const std::vector<Variable>& outputs, Place place) const;

  std::shared_ptr<const Spec> spec_;  // shared with the nodes of its calls
};

// The derivative of one call.
class FunctionNode : public Node {
 public:
  struct Saved {
    std::string name;
    SavedValue value;
    int input = -1, output = -1;  // what it is; neither: something else, with an edge of its own
    Edge edge = {};
  };
  FunctionNode(std::shared_ptr<const Function::Spec> spec, std::vector<Edge> edges, std::vector<TensorType> outputs,
               Place place);
  ~FunctionNode() override;

  std::string name() const override { return spec_->name + "Gradient"; }
  Gradients apply(Gradients gradients, const NodeRun& run) override;
  void release() override;

  void save(Saved saved) { saved_.push_back(std::move(saved)); }
  // The tangents of what was saved, of inputs that have some of that level.
  void save_tangents(const std::vector<Variable>& inputs, const std::vector<Variable>& outputs,
                     std::shared_ptr<LevelState> level);
  Variable saved(std::string_view name, bool release_it = false);
  // To look at what is kept, and for hooks on it. Null if there is none of that name.
  SavedValue* saved_value(std::string_view name);
  std::any data;

 private:
  Gradients run_backward(const Gradients& gradients, const NodeRun& run);
  void check_moving() const;
  void differentiate_never(Gradients& made, const Gradients& gradients) const;

  std::shared_ptr<const Function::Spec> spec_;
  std::vector<Saved> saved_;
  std::vector<std::shared_ptr<LevelState>> levels_;  // at which its inputs moved
  std::mutex lock_;
  bool released_ = false;
};

}  // namespace stepnet::autograd
