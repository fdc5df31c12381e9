// Operators' own examples in half types: their outputs and first gradients are those of double, but for roundings.
//
// What is fed is rounded first, for both runs, so that they differ by roundings of results alone: a few of the type's
// epsilons, relative to a tensor's largest element or 1. Threads: as core/gradcheck/example_check.h.
#pragma once

#include "core/gradcheck/gradient_check.h"
#include "core/operator/op_spec.h"

namespace stepnet {

// `half`: float16 or bfloat16. The report has a row for the outputs and one for the gradients, if there are any.
// Throws Error if the example cannot be run.
GradientReport check_in_half(const OpSpec& spec, const OpExample& example, DType half, uint64_t seed,
                             Device device = {});

}  // namespace stepnet
