// Which values of the forward pass one input's gradient is computed from.
//
// Threads: not for concurrent use.
#pragma once

#include <string>

#include "stepnet/op_spec.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

// The inputs and outputs whose values the gradient of input `wanted` alone reads: "A B".
inline std::string gradient_reads(const OperatorDef& def, const std::string& wanted) {
  const OpSpec& spec = op_spec(def.type());
  std::vector<bool> inputs;
  for (const std::string& name : def.input()) inputs.push_back(name == wanted);
  const GradientProgram program =
      record_gradient(spec, def, parse_args(spec, def).get(), inputs, std::vector<bool>(def.output_size(), true));
  std::string names;
  auto add = [&](const std::string& name) { names += (names.empty() ? "" : " ") + name; };
  for (int i = 0; i < def.input_size(); ++i)
    if (program.reads_input[i]) add(def.input(i));
  for (int i = 0; i < def.output_size(); ++i)
    if (program.reads_output[i]) add(def.output(i));
  return names;
}

}  // namespace stepnet::testing
