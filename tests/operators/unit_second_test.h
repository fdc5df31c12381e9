// What the tests of the second derivatives of GRUUnit and LSTMUnit share.
#pragma once

#include <string>
#include <vector>

#include "core/gradcheck/gradient_check.h"
#include "core/io/text.h"
#include "core/passes/gradients.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

struct Unit {
  std::string type;
  int64_t gates;                     // of each state
  std::vector<std::string> inputs;   // of its gradient's gradient; "lengths" and "t" are inputs 2 and 3
  std::vector<std::string> outputs;  // of the same

  OperatorDef second(const std::vector<Argument>& args) const { return second(args, inputs); }
  OperatorDef second(const std::vector<Argument>& args, const std::vector<std::string>& names) const {
    return make_op(type + "GradientGradient", names, outputs, args);
  }
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

inline std::string second_order_of(const GradientSubject& subject) {
  GradientCheckOptions options;
  options.order = 2;
  return check_gradients(subject, options).str();
}

template <class T>
Feeds second_feeds(const Unit& unit, const Shape& states) {
  const int64_t rows = states[0], d = states[1];
  Feeds feeds;
  for (const std::string& name : unit.inputs) {
    const bool of_gates = name == "gates" || name == "dgates_grad";
    feeds.emplace_back(name, normal<T>(of_gates ? Shape{rows, unit.gates * d} : states, feeds.size() + 1));
  }
  feeds[2].second = integers<int32_t>({rows}, 1, 3, 4);
  feeds[3].second = Tensor::of<int32_t>({1}, {1});
  return feeds;
}

inline void expect_float_close_to_double(const Unit& unit, const std::vector<Argument>& args) {
  const auto wide = run_op_on(unit.second(args), second_feeds<double>(unit, {40, 30}));
  const auto narrow = run_op_on(unit.second(args), second_feeds<float>(unit, {40, 30}));
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(compare(narrow[i], wide[i], 1e-5), "") << unit.outputs[i];
}

inline void expect_missing_are_zeros(const Unit& unit, const std::vector<size_t>& gradients,
                                     const std::vector<Argument>& args) {
  const Feeds feeds = second_feeds<double>(unit, {3, 2});
  for (const size_t missing : gradients) {
    Feeds zero = feeds;
    zero[missing].second.fill_zero();
    std::vector<std::string> inputs = unit.inputs;
    inputs[missing].clear();
    Feeds without = feeds;
    without.erase(without.begin() + static_cast<int64_t>(missing));
    const auto y = run_op_on(unit.second(args, inputs), without), expected = run_op_on(unit.second(args), zero);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(compare(y[i], expected[i], 0), "") << missing << unit.outputs[i];
  }
}

// With one input replaced.
inline std::string second_error(const Unit& unit, size_t input, const Tensor& value) {
  Feeds feeds = second_feeds<float>(unit, {4, 3});
  feeds[input].second = value;
  return error_of([&] { run_op_on(unit.second({}), feeds); });
}

// With one input's name empty; a gradient operator's inputs may have no names.
inline std::string missing_error(const Unit& unit, const std::string& type, std::vector<std::string> inputs,
                                 size_t missing, const std::vector<Argument>& args) {
  inputs[missing].clear();
  OperatorDef def = make_op(type, inputs, {"a", "b"}, args);
  def.set_is_gradient_op(true);
  return error_of([&] { run_op_on(def, second_feeds<float>(unit, {2, 3})); });
}

inline void expect_no_third_derivatives(const Unit& unit, NetDef net) {
  const auto gradient_of = [&](const std::string& target) {
    const GradientRequest request{.targets = {{target, ""}}, .wanted = {"gates"}, .stop = {}};
    return add_gradient_operators(net, request).gradients.at("gates").dense;
  };
  const std::string second = gradient_of(gradient_of("H"));
  expect_contains(error_of([&] { gradient_of(second); }), "third derivatives of " + unit.type + " are not written");
}

}  // namespace stepnet::testing
