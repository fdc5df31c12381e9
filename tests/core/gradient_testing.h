// What tests of the gradient pass share: nets written as lines, and backward passes read as lines.
//
// A line is "h, c = LSTMUnit(x, y)", with "-" for an absent name, and "name=1" after it for an integer argument.
// tests/core/gradient_test_ops.cc registers the operators Direct, UseInput, UseOutput, Nogradient, SparseFunHash and
// Observe, which have no kernels and exist to be differentiated.
// Threads: none shared.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stepnet/gradients.h"

namespace stepnet::testing {

using Lines = std::vector<std::string>;
using Targets = std::vector<std::pair<std::string, std::string>>;

NetDef net_of_lines(const Lines& lines);
std::string line_of(const OperatorDef& op);
Lines lines_of(const NetDef& net, int first = 0);

struct Backward {
  NetDef net;
  GradientResult result;
  Lines lines;                             // of the operators that were added
  std::map<std::string, std::string> map;  // blob to gradient; of a sparse one "indices;values"
};

// Differentiates the net; `wanted` as in GradientRequest.
Backward differentiate(const NetDef& net, const Targets& targets, const std::set<std::string>& wanted = {});
Backward differentiate(const Lines& lines, const Targets& targets, const std::set<std::string>& wanted = {});

}  // namespace stepnet::testing
