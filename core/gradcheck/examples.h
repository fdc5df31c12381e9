// Operators' own examples put to the test: as nets with feeds, run forward in each floating type, and differentiated.
//
// Threads: pure functions; one thread per ForwardRuns. Files are made in a folder of the example's own.
// Errors: Error if an example is wrong or cannot be run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/gradcheck/runs.h"
#include "stepnet/gradient_check.h"
#include "stepnet/op_spec.h"

namespace stepnet {

// `folder` stands for $FOLDER. The subject's outputs and inputs are what can be differentiated, and empty if nothing
// can; floating inputs are float64, but where an example gives a type. Throws Error if the example is wrong.
GradientSubject example_subject(const OpSpec& spec, const OpExample& example, uint64_t seed,
                                const std::string& folder = "");

// One operator on given values: the declared inputs in their order, a variadic one's elements as NAME0, NAME1, ...
// Throws Error if one is missing or unknown.
GradientSubject operator_subject(const OpSpec& spec, const std::map<std::string, Tensor>& values,
                                 const std::vector<std::string>& args, int outputs, uint64_t seed);

// Sets the inputs and outputs of a subject whose net is one operator to those that can be differentiated:
// floating-point numbers of double precision with a derivative. None if there are none.
void find_differentiable(GradientSubject& subject, uint64_t seed);

// True if the operator has a derivative by the declared input.
bool has_derivative(const OpSpec& spec, const std::string& input);

// The blobs of type float64 that the net's last operator writes, after a run.
std::vector<std::string> floating_outputs(const GradientSubject& subject, uint64_t seed);

// Returns a copy on the CPU with floating elements in another floating type; anything else as it is.
Tensor in_type(DType dtype, const Tensor& value);

// Forward runs of a net bound to its feeds, all floating ones in one type.
class ForwardRuns {
 public:
  ForwardRuns(const GradientSubject& subject, DType dtype, uint64_t seed, Device device = {});

  NamedTensors run();           // all that the net's operators write, on the CPU
  NamedTensors run_over_nan();  // again, over outputs that are NaN

 private:
  void feed();

  const GradientSubject& subject_;
  DType dtype_;
  uint64_t seed_;
  Device device_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

// "" or where two values differ by more than `tolerance` times the largest element or 1; integers must be equal.
std::string difference(const Tensor& a, const Tensor& b, double tolerance);

// True if an operator of the net does more than to compute its outputs.
bool has_side_effects(const NetDef& net);
// Names the outputs that are objects, such as what an operator keeps for its gradient: each device's own business.
std::set<std::string> objects_of(const NetDef& net);

// Checks gradients of both orders, and what holds for operators without gradients. Beside what
// stepnet/gradient_check.h tries: with all floating values as float the outputs are those of double, rounded;
// with one blob for two inputs the gradient is the sum of theirs; an operator without gradients writes every element of
// its outputs. On another device than the CPU the outputs are compared with the CPU's.
GradientReport check_example(const OpSpec& spec, const OpExample& example, const GradientCheckOptions& options,
                             Device device = {});

// Checks that in a half type, float16 or bfloat16, outputs and first gradients are those of double, but for roundings.
// What is fed is rounded first, for both runs, so that they differ by roundings of results alone: a few of the type's
// epsilons, relative to a tensor's largest element or 1. The report has a row for the outputs and one for the
// gradients, if there are any.
GradientReport check_in_half(const OpSpec& spec, const OpExample& example, DType half, uint64_t seed,
                             Device device = {});

}  // namespace stepnet
