// Inputs and arguments as text: "X=2,3", "LENGTHS=int32,3:2,0,1", "axis=1".
//
// Operators give their examples so, and command lines their inputs. Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepnet/op_spec.h"

namespace stepnet {

struct InputText {
  std::string name;
  TensorType type;
  std::optional<std::pair<double, double>> range;
  std::vector<std::string> values = {};  // of all elements, in order; empty if not given
};

// NAME=[TYPE,]SIZE,...[,LOW..HIGH], or NAME=[TYPE,]SIZE,...:VALUE,...; without a type, `type`. Throws Error that says
// how it is written; `option` is what the text was given to.
InputText parse_input(const std::string& option, const std::string& text, DType type);

// The values given. Without them floating ones are normal, or uniform in the range; whole numbers in the range, both
// ends included, or 0 and 1. Throws Error: strings without values, values that do not fit.
Tensor input_value(const InputText& input, uint64_t key);

// An argument of the declared type from "name=value"; lists have commas. Throws Error.
Argument parse_arg(const OpSpec& spec, const std::string& text);

}  // namespace stepnet
