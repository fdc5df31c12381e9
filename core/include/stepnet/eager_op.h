// EagerOp: an operator with its arguments, bound once to be run on variables many times.
//
// Beside the registration it holds the derivative's programs, each recorded when it is first needed, by which inputs
// want a gradient and which outputs have one, with their own operators bound; and those of forward mode, by which
// inputs move. Threads: immutable but for the programs, which any thread may add.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/bound_op.h"

namespace stepnet::autograd {

// Some yes and no, up to 64 of them without allocating.
class Flags {
 public:
  explicit Flags(size_t size = 0) : size_(size) {
    if (size > 64) more_.resize(size);
  }
  explicit Flags(const std::vector<bool>& flags) : Flags(flags.size()) {
    for (size_t i = 0; i < flags.size(); ++i)
      if (flags[i]) set(i);
  }
  size_t size() const { return size_; }
  bool operator[](size_t i) const { return size_ > 64 ? more_[i] : (word_ >> i) & 1; }
  void set(size_t i) {
    if (size_ > 64)
      more_[i] = true;
    else
      word_ |= uint64_t{1} << i;
  }
  bool operator==(const Flags&) const = default;
  std::vector<bool> all() const {
    std::vector<bool> flags(size_);
    for (size_t i = 0; i < size_; ++i) flags[i] = (*this)[i];
    return flags;
  }

 private:
  uint64_t word_ = 0;
  size_t size_ = 0;
  std::vector<bool> more_;
};

class EagerOp;

// A derivative, ready to run.
struct EagerGradient {
  GradientProgram program;
  // The operator with optional outputs more that the derivative reads in place of inputs; what is recorded is a call of
  // that one. Null if there is none, or if the gradient of an output is missing.
  std::shared_ptr<const EagerOp> instead;
  // The same with the operator's output computed again, which reads inputs in place of it: for where these are smaller.
  // Null unless the operator broadcasts, and the derivative reads its output and not all of its inputs.
  std::shared_ptr<const EagerGradient> from_inputs;
  std::vector<std::shared_ptr<const EagerOp>> steps;  // operators of the program's steps
  std::vector<int> last_use;                     // per slot: the last step that reads it; as many as steps: a result
  std::vector<int> saved_inputs, saved_outputs;  // whose values are read
};

class EagerOp : public std::enable_shared_from_this<EagerOp> {
 public:
  // How it is called: which inputs are there, how many outputs there are and which of them are wanted, and which output
  // overwrites which input (-1: none).
  struct Signature {
    std::string type;
    std::vector<bool> inputs;
    std::vector<bool> outputs;
    std::vector<Argument> args = {};
    std::vector<int> in_place = {};  // per output; empty: none
  };
  // Kept for the process and shared; throws Error if the operator is unknown or cannot be called so.
  static std::shared_ptr<const EagerOp> get(const Signature& signature);
  // The operator with the names that messages use, as it would stand in a net.
  static OperatorDef definition(const Signature& signature);
  explicit EagerOp(const Signature& signature);
  ~EagerOp();
  EagerOp(const EagerOp&) = delete;
  EagerOp& operator=(const EagerOp&) = delete;

  const BoundOp& bound() const { return bound_; }
  const BoundOp& bound_on(Device device) const;  // the same for kernels of that device
  const OpSpec& spec() const { return *bound_.spec; }
  const std::string& type() const { return bound_.def.type(); }
  int inputs() const { return bound_.def.input_size(); }
  int outputs() const { return bound_.def.output_size(); }
  bool has_input(int i) const { return present_inputs_[i]; }
  bool wants_output(int o) const { return present_outputs_[o]; }
  const Flags& wanted_outputs() const { return present_outputs_; }
  bool is_in_place() const { return !in_place_.empty(); }
  int in_place(int output) const { return in_place_.empty() ? -1 : in_place_[output]; }  // the input it overwrites
  int alias_of(int output) const { return alias_of_[output]; }  // the input whose storage it may show; -1: none
  const std::string& input_name(int i) const { return names_[i]; }
  const std::string& output_name(int o) const { return output_names_[o]; }

  // Throws Error if a wanted input has no derivative.
  const EagerGradient& gradient(const Flags& wanted, const Flags& present) const;
  // Forward mode: the tangents of the outputs, where the inputs `moved` have some (core/operator/program_gradients.h).
  // Throws Error as `gradient`.
  const EagerGradient& tangents(const Flags& moved) const;

 private:
  enum class Mode : uint8_t { backward, forward };
  struct Entry;
  struct Cache;
  const EagerGradient* find(Mode mode, const Flags& inputs, const Flags& outputs) const;
  const EagerGradient& add(Mode mode, const Flags& inputs, const Flags& outputs, GradientProgram program) const;
  static Cache& cache();
  static EagerGradient ready(GradientProgram program);
  std::shared_ptr<const EagerOp> keeping_less(const EagerGradient& here, const Flags& wanted) const;
  std::shared_ptr<const EagerGradient> from_inputs(const EagerGradient& here) const;
  void drop_gradients() const;  // when nobody can run them
  BoundOp bound_;
  Flags present_inputs_, present_outputs_;
  std::vector<int> in_place_, alias_of_;
  std::vector<std::string> names_, output_names_;
  mutable std::atomic<Entry*> entries_{nullptr};
  struct Elsewhere;
  mutable std::atomic<Elsewhere*> elsewhere_{nullptr};  // bound for other devices than the CPU
};

}  // namespace stepnet::autograd
