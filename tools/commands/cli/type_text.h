// Types of blobs as command lines give them: "X=float[32,128]".
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/operator/op_spec.h"

namespace stepnet::tools {

using Types = std::map<std::string, TensorType>;

// BLOB=TYPE[SIZE,...], without sizes for one element, without a type for floats; the name may have a '=' in it.
// `option` is what the text was given to. Throws Error that says how it is written.
std::pair<std::string, TensorType> parse_type(const std::string& option, const std::string& text);
// Of an option that may be repeated; throws Error also if a blob is given twice.
Types parse_types(const std::string& option, const std::vector<std::string>& texts);

}  // namespace stepnet::tools
