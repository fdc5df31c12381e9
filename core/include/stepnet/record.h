// Running operators on variables, and recording them.
//
// An operator is recorded if the thread records and one of its inputs requires a gradient. Its node then saves a value
// iff a formula of an input that requires one reads it; a formula that reads a shape alone saves the shape.
// Threads: as Variable.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stepnet/eager_op.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

struct RunOptions {
  int outputs = -1;       // how many; -1: those that the operator always has
  bool in_place = false;  // output 0 overwrites input 0
};

// Runs an operator by its type: run("Mul", {a, b})[0]. Absent inputs are undefined variables. Throws Error: unknown
// operator, wrong shapes or types, an input that requires a gradient and has no derivative, a leaf that requires a
// gradient or a recorded view written in place. (In net/net_function.cc: operators on blobs run as nets.)
std::vector<Variable> run(const std::string& type, const std::vector<Variable>& inputs,
                          const std::vector<Argument>& args = {}, const RunOptions& options = {},
                          Place place = Place::here());
// The same of an operator bound before, which takes less time.
std::vector<Variable> run(const EagerOp& op, std::span<const Variable> inputs, Place place = Place::here());
// The same into as many variables as the operator has outputs, without allocating a list of them.
void run_into(const EagerOp& op, std::span<const Variable> inputs, std::span<Variable> outputs,
              Place place = Place::here());
// Its only output.
Variable run1(const EagerOp& op, std::span<const Variable> inputs, Place place = Place::here());

// --- For nodes of other kinds (functions, nets) ----------------------------------------------------------------------

// Whether an operator on these inputs is to be recorded.
bool is_recorded(std::span<const Variable> inputs);
std::vector<Edge> gradient_edges(std::span<const Variable> inputs);
// An interior variable.
Variable variable_of(Tensor value, std::shared_ptr<Node> node, int output);
// Throws Error if the variable may not be overwritten now. `tracked`: by what requires a gradient.
void check_writable(const Variable& variable, const std::string& by, bool tracked = true);
// The variable becomes output `output` of `node`; the wish to retain the gradient goes with it, and hooks stay with
// what it was.
void rebase_history(const Variable& variable, std::shared_ptr<Node> node, int output);
// The variable becomes a leaf that requires no gradient.
void drop_history(const Variable& variable);
// The variable, an output of an operator, shows the bytes of `base`.
void make_view(const Variable& view, const Variable& base);
// Throws Error if the variable is a view of something that was overwritten since it was taken, so that its history is
// not that of its values.
void check_view(const Variable& variable);

}  // namespace stepnet::autograd
