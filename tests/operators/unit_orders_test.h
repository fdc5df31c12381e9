// What the tests of higher derivatives of GRUUnit and LSTMUnit share.
#pragma once

#include <string>
#include <vector>

#include "core/gradcheck/examples.h"
#include "core/gradcheck/runs.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

struct Unit {
  std::string type;
  int64_t gates;  // of each state
};

// The unit itself, with gradients for all but lengths and t.
inline GradientSubject unit_subject(const Unit& unit, std::vector<std::string> inputs, const Shape& states,
                                    bool lengths, const std::vector<Argument>& args,
                                    const std::vector<std::string>& outputs) {
  const int64_t d = states.at(-1), rows = states.size_between(0, states.rank() - 1);
  GradientSubject subject;
  for (const std::string& name : inputs)
    subject.feeds[name] = name == "gates" ? normal<double>(states.with(states.rank() - 1, unit.gates * d), 3, 0, 2)
                                          : normal<double>(states, name == "C_prev" ? 2 : 1);
  subject.inputs = inputs;
  if (lengths) {
    inputs.emplace_back("lengths");
    subject.feeds["lengths"] = integers<int32_t>({rows}, 1, 3, 4);
  }
  inputs.emplace_back("t");
  subject.feeds["t"] = Tensor::of<int32_t>({1}, {1});
  *subject.net.add_op() = make_op(unit.type, inputs, outputs, args);
  subject.outputs = outputs;
  return subject;
}

// A second step of 2 rows of 2 states, whose gates are "more", and what follows.
inline void add_step(GradientSubject& subject, const Unit& unit, const std::string& text) {
  const NetDef more = parse_net_text(text, "test");
  for (const OperatorDef& op : more.op()) *subject.net.add_op() = op;
  subject.feeds["more"] = normal<double>({2, 2 * unit.gates}, 9);
  subject.inputs.emplace_back("more");
  subject.outputs = {"loss"};
}

// What is wrong with derivatives up to this order.
inline std::string wrong_up_to(int order, const GradientSubject& subject) {
  GradientCheckOptions options;
  options.order = order;
  return check_gradients(subject, options).str();
}

// The gradients of a sum of multiples of the subject's gradients, with all floating values in one type.
inline NamedTensors second_gradients(const GradientSubject& subject, DType dtype) {
  GradientSubject second = gradients_as_subject(subject, MovedRuns(subject, 1).weights());
  GradientRequest request{.targets = {}, .wanted = {second.inputs.begin(), second.inputs.end()}, .stop = {}};
  for (const std::string& output : second.outputs) request.targets.emplace_back(output, "");
  const GradientResult result = add_gradient_operators(second.net, request);
  Workspace workspace;
  for (const auto& [name, value] : second.feeds) workspace.tensor(name) = in_type(dtype, value);
  second.net.clear_external_input();
  RunContext context;
  run_net_once(second.net, workspace, context);
  NamedTensors gradients;
  for (const std::string& input : second.inputs)
    if (const auto found = result.gradients.find(input); found != result.gradients.end())
      gradients[input] = workspace.fetch(found->second.dense).clone();
  return gradients;
}

inline void expect_float_close_to_double(const GradientSubject& subject) {
  const NamedTensors wide = second_gradients(subject, DType::float64);
  EXPECT_FALSE(wide.empty());
  for (const auto& [input, narrow] : second_gradients(subject, DType::float32)) {
    EXPECT_EQ(narrow.dtype(), DType::float32);
    EXPECT_EQ(compare(narrow, wide.at(input), 1e-4, ErrorScale::tensor), "") << input;
  }
}

// Runs the unit's gradient on these inputs, of which one has no name, which those of a gradient operator need not have.
inline std::string missing_error(const Unit& unit, std::vector<std::string> inputs, size_t missing) {
  const Shape states{2, 3}, gates{2, 3 * unit.gates};
  Feeds feeds = {{"lengths", integers<int32_t>({2}, 1, 3, 4)}, {"t", Tensor::of<int32_t>({1}, {1})}};
  for (const std::string& name : inputs)
    if (name != "lengths" && name != "t") feeds.emplace_back(name, normal<float>(name == "gates" ? gates : states, 5));
  inputs[missing].clear();
  OperatorDef def = make_op(unit.type + "Gradient", inputs, {"a", "b"});
  def.set_is_gradient_op(true);
  return error_of([&] { run_op_on(def, feeds); });
}

}  // namespace stepnet::testing
