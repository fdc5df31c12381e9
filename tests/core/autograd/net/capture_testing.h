// What tests of captured nets share: running one, and comparing bits.
#pragma once

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "stepnet/net.h"
#include "stepnet/net_function.h"
#include "stepnet/text.h"
#include "tests/core/autograd/tape_testing.h"

namespace stepnet::autograd::testing {

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == DType::string) return std::ranges::equal(a.span<std::string>(), b.span<std::string>());
  return a.size() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

inline void feed(const Captured& captured, const std::vector<Tensor>& inputs, Workspace& workspace) {
  for (size_t i = 0; i < inputs.size(); ++i) workspace.tensor(captured.inputs[i]) = inputs[i].clone();
  for (const auto& [name, value] : captured.constants) workspace.tensor(name) = value.clone();
}

// The net's outputs and leaves' gradients after some runs, the last of which is in planned memory if there are several.
inline std::vector<Tensor> run_captured_net(const Captured& captured, const std::vector<Tensor>& inputs, int runs = 1) {
  Workspace workspace;
  feed(captured, inputs, workspace);
  NetOptions options;
  options.plan_memory = runs > 1;
  Net net(captured.net, workspace, options);
  RunContext context;
  for (int i = 0; i < runs; ++i) net.run(context);
  std::vector<Tensor> made;
  for (const std::string& name : captured.net.external_output()) made.push_back(workspace.fetch(name).clone());
  return made;
}

// Captures the function, and expects of the net, of the net in planned memory, and of the net as text what the eager
// run makes of the same inputs.
inline Captured expect_captured(const TapeProgram& fn, const std::vector<Variable>& inputs,
                                const CaptureOptions& options = {}) {
  std::vector<Tensor> given;
  for (const Variable& v : inputs) given.push_back(v.value().clone());
  std::vector<Tensor> should;
  const auto noting = [&](const std::vector<Variable>& in) {
    const std::vector<Variable> outputs = fn(in);
    for (const Variable& v : outputs) should.push_back(v.value());
    return outputs;
  };
  Captured captured = capture(noting, inputs, options);
  std::set<std::string> names(captured.outputs.begin(), captured.outputs.end());
  for (const Captured::LeafGradient& g : captured.gradients) {
    names.insert({g.dense, g.indices, g.values});
    const VariableGradient& grad = g.leaf.grad();
    for (const Variable& part : {grad.dense, grad.indices, grad.values})
      if (part.defined()) should.push_back(part.value());
  }
  for (const Captured::Written& w : captured.written)
    if (names.insert(w.name).second) should.push_back(w.bytes);
  for (Tensor& t : should) t = t.clone();
  Captured read = captured;
  read.net = parse_net_text(to_text(captured.net), "captured");
  for (const auto& made :
       {run_captured_net(captured, given), run_captured_net(captured, given, 3), run_captured_net(read, given, 2)}) {
    EXPECT_EQ(made.size(), should.size());
    for (size_t k = 0; k < made.size() && k < should.size(); ++k)
      EXPECT_TRUE(same_bits(made[k], should[k])) << captured.net.external_output(static_cast<int>(k)) << " of\n"
                                                 << to_text(captured.net);
  }
  return captured;
}

}  // namespace stepnet::autograd::testing
