// The engine: runs derivatives from roots to leaves.
//
// A node runs when all gradients that flow to it have arrived, later recorded nodes first, so that gradients are added
// in one fixed order. If inputs are named, only nodes on a path to one of them run, a formula runs only for edges on
// such a path, and it stops at them. Backward passes may run inside nodes and hooks, to any depth.
// Threads: several backward passes may run at once; each sees its own needs. Gradients of leaves accumulate under a
// lock.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/node.h"

namespace stepnet::autograd {

struct BackwardOptions {
  bool create_graph = false;          // record the derivatives, so that they can be differentiated
  bool keep_graph = false;            // keep saved values, for another pass; create_graph implies it
  std::vector<Variable> inputs = {};  // accumulate in these alone (they may be interior); empty: in every leaf
  int threads = 1;                    // see GradOptions
};

// Adds the gradients of `roots` to those of the leaves. `gradients`: of each root, undefined where it is one, for a
// root of one element. Throws Error: a root that needs no gradient, a gradient of another type or shape, saved values
// that are gone or stale, and what operators and hooks throw.
void backward(const std::vector<Variable>& roots, const Gradients& gradients = {}, const BackwardOptions& options = {});
inline void backward(const Variable& root, const BackwardOptions& options = {}) { backward({root}, {}, options); }

struct GradOptions {
  Gradients grad_outputs = {};  // as in backward
  bool create_graph = false;
  bool keep_graph = false;
  bool allow_unused = false;  // an input that no output depends on has an undefined gradient, instead of an Error
  bool materialize = false;   // it has zeros instead; implies allow_unused
  // With more than one, independent nodes run at the same time, each on one core, and hooks are called by any of these
  // threads. Gradients are added in the same order, so the bits are those of a pass inside a SerialScope
  // (core/compute/threads.h); those that wait for their turn are held until then. A pass that records runs on one,
  // since the order in which nodes are made is that of later sums.
  int threads = 1;
};

// The gradients of the sum of `outputs` by each of `inputs`. No variable's own gradient changes, but for interior ones
// on the way that retain theirs.
Gradients grad(const std::vector<Variable>& outputs, const std::vector<Variable>& inputs,
               const GradOptions& options = {});

// Edges in place of variables: what a variable was when the edge was taken, whatever happened to it since.
void backward_edges(const std::vector<Edge>& roots, Gradients gradients, const BackwardOptions& options = {});
Gradients grad_edges(const std::vector<Edge>& outputs, const std::vector<Edge>& inputs, const GradOptions& options);

// --- Forward mode
// -----------------------------------------------------------------------------------------------------
//
// A tangent of a variable y(x) for a direction v of x is J v. Operators whose inputs have tangents compute those of
// their outputs at once, by formulas that follow from their derivatives. They are recorded like all operators, and
// values that are saved for a backward pass keep their tangents, so that a gradient that is taken of moving variables
// moves, too: that is the Hessian times v. Tangents may have tangents: levels nest. NoGrad does not touch them;
// `detach` drops them.

struct LevelState;

// For a scope: tangents of one level. When it ends they are gone, whoever still has the variables.
class TangentLevel {
 public:
  TangentLevel();
  ~TangentLevel();
  TangentLevel(const TangentLevel&) = delete;
  TangentLevel& operator=(const TangentLevel&) = delete;

  // A view of x, with its history, that moves along `direction`. Throws Error if the direction has another type or
  // shape.
  Variable dual(const Variable& x, const Variable& direction) const;
  // Undefined if the variable does not move.
  Variable tangent(const Variable& v) const;

 private:
  std::shared_ptr<LevelState> state_;
};

using VariableFunction = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

struct Jvp {
  std::vector<Variable> outputs, tangents;  // a tangent that is zero is zeros; of integers it is undefined
};
// The Jacobian of `fn` at `inputs` times `directions`, one per input, undefined for one that does not move. What an
// input that requires a gradient, or has tangents of an outer level, contributes can be differentiated in turn.
Jvp jvp(const VariableFunction& fn, const std::vector<Variable>& inputs, const std::vector<Variable>& directions);

struct Hvp {
  Variable value;                             // of the function
  std::vector<Variable> gradients, products;  // per input: of the value, and the Hessian times the directions
};
// The Hessian of the one-element output of `fn` times `directions`, forward over reverse: a backward pass whose
// gradients move. Where `fn` runs a net as one operation (NetFunction, recurrent layers), whose backward pass has no
// forward mode, it is reverse over forward instead: `fn` runs a second time. Derivatives are partial ones, also if an
// input is there twice or computed from another. What inputs, directions, or variables that `fn` captures contribute
// can be differentiated in turn if these require gradients or move; so with `jacobian` and `hessian`.
Hvp hvp(const VariableFunction& fn, const std::vector<Variable>& inputs, const std::vector<Variable>& directions);

// Per output and input: the derivatives of each element of the output, in rows of the input's shape: [elements, ...].
// By one backward pass for each element. Of integer inputs undefined. Elements are float or double.
std::vector<std::vector<Variable>> jacobian(const VariableFunction& fn, const std::vector<Variable>& inputs);
// Of the one-element output of `fn`, per pair of inputs: for each element of the first a row of the second's shape. By
// one Hessian-vector product for each element.
std::vector<std::vector<Variable>> hessian(const VariableFunction& fn, const std::vector<Variable>& inputs);

// Where a gradient cannot have a tangent: take the gradient of what has the tangent instead.
class NoTangentOfGradient : public Error {
 public:
  using Error::Error;
};

// Inside a node or hook: whether the running pass will run (or capture at) that node; throws Error outside.
bool will_run(const Node& node);
// Inside a node or hook: `fn` runs once when the running pass is done; throws Error outside.
void when_done(std::function<void()> fn);
// The running pass's number, which rises with every pass; 0 outside.
uint64_t running_pass();

}  // namespace stepnet::autograd
