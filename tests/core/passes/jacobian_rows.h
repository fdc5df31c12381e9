// Jacobians of nets in one pass, compared with the rows that ordinary backward passes give one by one.
//
// Threads: not for concurrent use.
#pragma once

#include <string>

#include "stepnet/gradient_check.h"

namespace stepnet::testing {

struct RowCounts {
  int jacobians = 0;  // that were compared
  int refused = 0;    // that an ordinary backward pass refuses, too
};

// The Jacobians of each of the subject's outputs with respect to all of its inputs. "" or what is wrong first.
std::string compare_jacobians(const GradientSubject& subject, RowCounts& counts);

}  // namespace stepnet::testing
