// An operator's example as a net with feeds, ready to run or to be differentiated.
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/gradcheck/gradient_check.h"
#include "core/operator/op_spec.h"

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

// The blobs of type float64 that the net's last operator writes, after a run.
std::vector<std::string> floating_outputs(const GradientSubject& subject, uint64_t seed);

}  // namespace stepnet
