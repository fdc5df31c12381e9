// Formula: how a derivative is written, and GradientProgram, what is recorded of it.
//
// A derivative formula runs once per (operator, arguments, arity, wanted gradients, present output gradients) against
// a Formula, which records the operators it names into a small program of slots. The gradient pass prints that program
// into a net, the tape runs it, and the guard reads from it which forward values must be kept: what a formula reads
// cannot be misstated. A formula may branch on arguments, arity, wants() and has_dy(), never on shapes.
//
// What a fused operator computes is a formula, too, its *body*: small operators over its own inputs. Derivatives that
// the operator does not give itself follow from the body's steps, run backwards; what of the forward values they read
// is computed again.
// Threads: a Formula belongs to one thread; a finished program is immutable.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

struct OpSpec;

// A slot of the program; negative: no value.
struct Value {
  int slot = -1;
  bool defined() const { return slot >= 0; }
};

// The gradient of one input: nothing, zero, a dense value, or sparse rows (indices [N], values [N, ...]).
struct Gradient {
  Value dense;
  Value indices, values;
  bool is_zero = false;
  Gradient() = default;
  Gradient(Value v) : dense(v) {}  // NOLINT(google-explicit-constructor): a formula returns a plain value
  // Of an input of which nothing but the shape matters.
  static Gradient none() { return {}; }
  // Of an input that the output is constant in but for jumps, as ReluGradient is in Y. Nothing that would only feed it
  // runs, and where it is asked for, it is zeros.
  static Gradient zero() {
    Gradient g;
    g.is_zero = true;
    return g;
  }
  static Gradient sparse(Value indices, Value values) {
    Gradient g;
    g.indices = indices;
    g.values = values;
    return g;
  }
  bool is_sparse() const { return values.defined(); }
  bool defined() const { return dense.defined() || is_sparse(); }
};

struct GradientProgram {
  enum class SlotKind { input, output, output_gradient, temporary };
  struct Slot {
    SlotKind kind;
    int index = 0;          // actual forward input or output; for a temporary, nothing
    std::string hint = {};  // temporary: what it is called in an emitted net
    int like = -1;          // temporary: another slot whose value has its shape
  };
  struct Step {
    std::string type;
    std::vector<Argument> args;
    std::vector<int> inputs;   // slots, -1 for absent
    std::vector<int> outputs;  // slots, -1 for not wanted
    std::vector<bool> reads;   // per input, whether its value is read; empty: as the operator's schema says
  };
  std::vector<Slot> slots;
  std::vector<Step> steps;         // only those that some result needs
  std::vector<Gradient> results;   // per actual forward input; undefined if not wanted or none
  std::vector<bool> reads_input;   // per actual forward input: its value is read
  std::vector<bool> reads_output;  // per actual forward output
};

class Formula {
 public:
  // `wanted`: per actual input; `present`: per actual output, whether its gradient exists.
  Formula(const OpSpec& spec, const OperatorDef& def, const void* args, std::vector<bool> wanted,
          std::vector<bool> present);

  // Forward inputs and outputs and the gradients of outputs, by declared name; `element` of a variadic one.
  Value x(std::string_view name, int element = 0);
  Value y(std::string_view name, int element = 0);
  Value dy(std::string_view name, int element = 0);
  // The same by actual index, for operators that find their inputs by arguments.
  Value x_at(int i);
  Value y_at(int i);
  Value dy_at(int i);
  bool has_x(std::string_view name) const;  // an optional input is there
  bool has_dy(std::string_view name, int element = 0) const;
  bool has_dy_at(int i) const { return present_[i]; }
  bool wants(std::string_view name, int element = 0) const;  // the gradient of that input is asked for
  bool wants_at(int i) const { return wanted_[i]; }
  int inputs() const { return static_cast<int>(wanted_.size()); }
  int outputs() const { return static_cast<int>(present_.size()); }
  int count(std::string_view input) const;  // elements of a variadic input

  // One operator with one output.
  Value op(std::string type, std::vector<Value> inputs, std::vector<Argument> args = {});
  // One operator with several outputs; those not wanted come back undefined.
  std::vector<Value> ops(std::string type, std::vector<Value> inputs, std::vector<Argument> args,
                         const std::vector<bool>& wanted_outputs);

  // Says that `v` has the shape of `like`, which then serves where v's shape alone is read. Returns v.
  Value same_shape(Value v, Value like);

  // Records the steps of another program. `given` says what that program's inputs, outputs and gradients of outputs are
  // here. Returns the values of all its slots.
  std::vector<Value> insert(const GradientProgram& program,
                            const std::function<Value(const GradientProgram::Slot&)>& given);

  // Says of the operator named last which of its inputs' values it reads, where that depends on its arguments.
  void set_reads(std::vector<bool> reads);

  template <class A>
  const A& args() const {
    return *static_cast<const A*>(args_);
  }
  std::vector<Argument> forward_args() const;  // as the forward operator was given them
  const OperatorDef& def() const { return def_; }

  const GradientProgram& program() const { return program_; }

 private:
  friend GradientProgram record_gradient(const OpSpec&, const OperatorDef&, const void*, std::vector<bool>,
                                         std::vector<bool>);
  friend GradientProgram record_body(const OpSpec&, const OperatorDef&, const void*);
  int slot(GradientProgram::SlotKind kind, int index);
  int input_at(std::string_view name, int element) const;
  int output_at(std::string_view name, int element) const;

  const OpSpec& spec_;
  const OperatorDef& def_;
  const void* args_;
  std::vector<bool> wanted_, present_;
  GradientProgram program_;
  std::map<std::pair<GradientProgram::SlotKind, int>, int> slots_;  // but for temporaries
};

// Runs the operator's formulas for the wanted inputs and trims the program to what the results need.
// Derivatives that the operator does not give follow from its body, if it has one. Throws Error if a wanted input has
// no derivative, naming operator and input.
GradientProgram record_gradient(const OpSpec& spec, const OperatorDef& def, const void* args, std::vector<bool> wanted,
                                std::vector<bool> present);

// The body of an operator that has one. The results are its outputs, as dense values; undefined for one that the body
// does not compute.
GradientProgram record_body(const OpSpec& spec, const OperatorDef& def, const void* args);

}  // namespace stepnet
