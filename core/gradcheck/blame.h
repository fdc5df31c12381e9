// Which operators of a net have wrong derivatives.
//
// Threads: not for concurrent use.
#pragma once

#include <functional>

#include "stepnet/gradient_check.h"

namespace stepnet {

using CheckDerivatives = std::function<GradientReport(const GradientSubject&, const GradientCheckOptions&)>;

// Runs the subject's net operator by operator, with the nets inside as their rooms run them (add_inner_run_rule), and
// checks each operator that the outputs depend on alone, at the values that it has there. Those that are wrong are
// added to what is blamed; of an operator that runs a net the operators of that net, if one of these is wrong. Does
// nothing where the whole is one operator that runs no net.
void find_blamed(const GradientSubject& subject, const GradientCheckOptions& options, const CheckDerivatives& check,
                 GradientReport& report);

}  // namespace stepnet
