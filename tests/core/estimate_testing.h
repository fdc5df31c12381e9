// Sessions that run dry and for real, compared operator by operator.
//
// Threads: not for concurrent use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/estimate/estimate.h"

namespace stepnet::testing {

using MakeSession = std::function<std::unique_ptr<NetSession>()>;

// Two runs of a dry session and of a real one: live bytes before, in and behind every operator, by the allocators, and
// the matrix products' floating-point operations. "" or the first difference.
std::string compare_with_real(const MakeSession& make);

}  // namespace stepnet::testing
