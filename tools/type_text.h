// Types of blobs as command lines give them: "X=float[32,128]".
//
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>

#include "core/op_spec.h"

namespace stepnet::tools {

// BLOB=TYPE[SIZE,...], without sizes for one element; the name may have a '=' in it. `option` is what the text was
// given to. Throws Error that says how it is written.
std::pair<std::string, TensorType> parse_type(const std::string& option, const std::string& text);

}  // namespace stepnet::tools
