// What PyTorch keeps of an operator for its derivative, as tools/autograd/derivatives.yaml of PyTorch 2 says: of each
// operator that has a counterpart there, the values that the counterpart's node saves, and which inputs must require a
// gradient for that. Threads: pure functions.
#pragma once

#include <string>
#include <vector>

namespace stepnet::autograd::testing {

struct SavedByPyTorch {
  // An input or output of the operator, by the name that its example has; or the type and the sizes of a value that
  // only PyTorch has: "int64 32,1".
  std::string value;
  // Inputs of which one must require a gradient, with "|" between them; "": it is saved whatever requires one. An input
  // that several formulas read, and every output, is saved without a condition.
  std::string when = {};
};

struct BesidePyTorch {
  std::string type, counterpart;
  std::vector<std::string> inputs, args;  // as in the operators' examples
  std::vector<SavedByPyTorch> saves;
  int outputs = 1;  // how many the operator is called with
};

const std::vector<BesidePyTorch>& beside_pytorch();

}  // namespace stepnet::autograd::testing
