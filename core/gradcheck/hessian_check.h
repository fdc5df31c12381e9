// Whether Hessians times vectors are right, and the Hessian symmetric.
//
// Threads: pure functions.
#pragma once

#include "stepnet/gradient_check.h"

namespace stepnet {

// Adds a row for each way in which H v is computed, and for the differences; see stepnet/gradient_check.h. Throws Error
// where an input has no second derivative; with where_possible it is left out, and named in what is refused.
void check_hessian(const GradientSubject& subject, const GradientCheckOptions& options, GradientReport& report);

}  // namespace stepnet
