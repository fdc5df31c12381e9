// Whether operators compute what their bodies say (OpBuilder::composed).
//
// Threads: not for concurrent use.
#pragma once

#include "stepnet/gradient_check.h"

namespace stepnet {

// Runs the subject's net operator by operator, and for each that has a body the body on the same inputs. Adds a
// sentence to what is broken for each whose outputs differ by more than rounding.
void check_bodies(const GradientSubject& subject, uint64_t seed, GradientReport& report);

}  // namespace stepnet
