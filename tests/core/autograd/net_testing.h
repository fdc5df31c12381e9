// What tests of nets on the tape share: nets from text, and the static net's values and gradients to compare with.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/net_function.h"
#include "stepnet/text.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"

namespace stepnet::autograd::testing {

inline NetDef net_from(const std::string& text) { return parse_net_text("name: \"tested\" " + text, "test"); }
inline std::string op_text(const std::string& type, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs, const std::string& more = "") {
  std::string text = "op { type: \"" + type + "\" ";
  for (const std::string& name : inputs) text += "input: \"" + name + "\" ";
  for (const std::string& name : outputs) text += "output: \"" + name + "\" ";
  return text + more + " } ";
}

using Blobs = std::map<std::string, Tensor>;

// Runs a net with the gradient operators for these targets, whose gradients are given, in one workspace. The gradients
// of `wanted` are called name_gradient.
inline Blobs run_static(NetDef net, const Blobs& feeds, const Blobs& given, const std::vector<std::string>& wanted,
                        const std::vector<std::string>& fetched) {
  GradientRequest request;
  Workspace workspace;
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  for (const auto& [name, value] : given) {
    request.targets.emplace_back(name, name + "_grad");
    workspace.tensor(name + "_grad") = value.clone();
  }
  request.wanted.insert(wanted.begin(), wanted.end());
  const GradientResult result = add_gradient_operators(net, request);
  net.clear_external_input();
  net.clear_external_output();
  RunContext context;
  context.seed = random_state().seed;
  Net bound(net, workspace);
  bound.set_runs(random_state().draws);
  bound.run(context);
  Blobs blobs;
  for (const std::string& name : fetched) blobs[name] = workspace.fetch(name);
  for (const std::string& name : wanted) blobs[name + "_gradient"] = workspace.fetch(result.gradients.at(name).dense);
  return blobs;
}

template <class Fn>
void expect_error(Fn fn, const std::vector<std::string>& parts) {
  const std::string text = stepnet::testing::error_text(fn);
  for (const std::string& part : parts) stepnet::testing::expect_contains(text, part);
}

// A float64 tensor of numbers between -1 and 1 that differ.
inline Tensor numbers(const Shape& shape, double first) {
  Tensor t = Tensor::empty(DType::float64, shape);
  for (int64_t i = 0; i < shape.size(); ++i) t.data<double>()[i] = std::sin(first + 1.7 * static_cast<double>(i));
  return t;
}

// Bit for bit.
inline bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.size() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

}  // namespace stepnet::autograd::testing
