// Values of blobs as people read them, for --fetch and --watch, and their types as command lines give them:
// "X=float[32,128]".
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/op_spec.h"
#include "stepnet/workspace.h"

namespace stepnet::tools {

// "loss = 0.5" for one element; else name, type and all rows, or a summary if there are more than 100 elements.
std::string blob_text(const std::string& name, const Blob& blob);
// One line: the value of one element, else the smallest, mean and largest.
std::string blob_summary(const std::string& name, const Blob& blob);

using Types = std::map<std::string, TensorType>;

// BLOB=TYPE[SIZE,...], without sizes for one element, without a type for floats; the name may have a '=' in it.
// `option` is what the text was given to. Throws Error that says how it is written.
std::pair<std::string, TensorType> parse_type(const std::string& option, const std::string& text);
// Parses those of an option that may be repeated; throws Error also if a blob is given twice.
Types parse_types(const std::string& option, const std::vector<std::string>& texts);

}  // namespace stepnet::tools
