// A gradient check's report as JSON.
//
// Threads: pure functions.
#pragma once

#include "core/io/json.h"
#include "stepnet/gradient_check.h"

namespace stepnet {

// "first", "second" or "third".
const char* order_name(int order);

// An object with the members "right", "rows", "broken", "refused", "operators", "searched", "blamed" and "unsearched".
// docs/commands.md says what is in them.
Json report_json(const GradientReport& report);
Json options_json(const GradientCheckOptions& options);

}  // namespace stepnet
