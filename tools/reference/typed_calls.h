// The text of stepnet/ops.h, which is written while Stepnet is built: a typed function for every operator on tensors
// that programs call.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "stepnet/op_spec.h"

namespace stepnet::tools {

std::string typed_calls();

// "SoftmaxWithLoss" as softmax_with_loss; a keyword of C++ gets an underscore behind it.
std::string function_name(const std::string& type);

}  // namespace stepnet::tools
