// Inputs as a command line gives them: a name, a type, sizes, and for values a range.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/op_spec.h"

namespace stepnet::tools {

struct InputText {
  std::string name;
  TensorType type;
  std::optional<std::pair<double, double>> range;
};

// "x=2,3", "x=int32,2,3" or "x=2,3,0.5..2"; without a type, `type`. Throws Error that says how it is written.
InputText parse_input(const std::string& option, const std::string& text, DType type);

// The blob and the file of "BLOB=FILE.npy". Throws Error.
std::pair<std::string, std::string> parse_feed(const std::string& text);

// Values of that type and shape: floating ones normal, or uniform in the range; whole numbers in the range, both ends
// included, or 0 and 1.
Tensor random_values(const InputText& input, uint64_t key);

// An argument of the declared type from "name=value"; lists have commas. Throws Error.
Argument parse_arg(const OpSpec& spec, const std::string& text);

}  // namespace stepnet::tools
