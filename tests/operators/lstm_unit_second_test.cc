// Second derivatives of LSTMUnit against differences of its first ones.
#include <cmath>

#include "core/gradient_check.h"
#include "core/io/text.h"
#include "core/passes/gradients.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {
namespace {

struct Options {
  double forget_bias = 0;
  bool drop = false;
  bool lengths = true;
};
const Options kOptions[] = {{}, {1.5, false, true}, {-0.5, true, true}, {2, true, false}};

std::vector<Argument> arguments(const Options& o) {
  return {make_arg("forget_bias", static_cast<float>(o.forget_bias)), make_arg("drop_states", o.drop),
          make_arg("sequence_lengths", o.lengths)};
}

OperatorDef unit(const Options& o) {
  std::vector<std::string> inputs = {"H_prev", "C_prev", "gates"};
  if (o.lengths) inputs.emplace_back("lengths");
  inputs.emplace_back("t");
  return make_op("LSTMUnit", inputs, {"H", "C"}, arguments(o));
}

GradientSubject subject_of(const Shape& states, const Options& o, const std::vector<std::string>& outputs) {
  const int64_t d = states.at(-1), rows = states.size_between(0, states.rank() - 1);
  GradientSubject subject;
  *subject.net.add_op() = unit(o);
  subject.feeds = {{"H_prev", normal<double>(states, 1)},
                   {"C_prev", normal<double>(states, 2)},
                   {"gates", normal<double>(states.with(states.rank() - 1, 4 * d), 3, 0, 2)},
                   {"t", Tensor::of<int32_t>({1}, {1})}};
  if (o.lengths) subject.feeds["lengths"] = integers<int32_t>({rows}, 1, 3, 4);
  subject.outputs = outputs;
  subject.inputs = {"H_prev", "C_prev", "gates"};
  return subject;
}

std::string second_order_of(const GradientSubject& subject) {
  GradientCheckOptions options;
  options.order = 2;
  return check_gradients(subject, options).str();
}

TEST(LstmUnitSecond, IsTheDifferenceOfFirstDerivatives) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 3, 2}, Shape{4, 1}, Shape{0, 2}, Shape{2, 0}})
      EXPECT_EQ(second_order_of(subject_of(states, o, {"H", "C"})), "") << states.str();
}

TEST(LstmUnitSecond, OfOneOutputAlone) {
  for (const char* only : {"H", "C"}) EXPECT_EQ(second_order_of(subject_of({3, 2}, {0.5}, {only})), "") << only;
}

// C of the first step is an input of the second one, and of both gradients.
TEST(LstmUnitSecond, OfTwoSteps) {
  GradientSubject subject = subject_of({2, 2}, {0.5, false, false}, {"loss"});
  const NetDef more = parse_net_text(R"(
    op { type: 'LSTMUnit' input: 'H' input: 'C' input: 'more' input: 't' output: 'H2' output: 'C2'
         arg { name: 'sequence_lengths' i: 0 } }
    op { type: 'Mul' input: 'H2' input: 'C2' output: 'loss' })",
                                     "test");
  for (const OperatorDef& op : more.op()) *subject.net.add_op() = op;
  subject.feeds["more"] = normal<double>({2, 8}, 9);
  subject.inputs.emplace_back("more");
  EXPECT_EQ(second_order_of(subject), "");
}

const std::vector<std::string> kInputs = {"C_prev", "gates",   "lengths",      "t",          "C", "dH",
                                          "dC",     "dH_prev", "dC_prev_grad", "dgates_grad"};
const std::vector<std::string> kOutputs = {"to_C_prev", "to_gates", "to_C", "to_dH", "to_dC"};

template <class T>
Feeds second_feeds(const Shape& states) {
  const int64_t rows = states[0], d = states[1];
  Feeds feeds;
  for (const std::string& name : kInputs)
    feeds.emplace_back(name, normal<T>(name.find("gates") == 0 || name == "dgates_grad" ? Shape{rows, 4 * d} : states,
                                       feeds.size() + 1));
  feeds[2].second = integers<int32_t>({rows}, 1, 3, 4);
  feeds[3].second = Tensor::of<int32_t>({1}, {1});
  return feeds;
}

TEST(LstmUnitSecond, FloatIsCloseToDouble) {
  const OperatorDef def = make_op("LSTMUnitGradientGradient", kInputs, kOutputs, arguments({0.5}));
  const auto wide = run_op_on(def, second_feeds<double>({40, 30}));
  const auto narrow = run_op_on(def, second_feeds<float>({40, 30}));
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(compare(narrow[i], wide[i], 1e-5), "") << kOutputs[i];
}

TEST(LstmUnitSecond, MissingGradientsAreZeros) {
  Feeds feeds = second_feeds<double>({3, 2});
  for (const size_t missing : {5, 6, 7, 8, 9}) {
    Feeds zero = feeds;
    zero[missing].second.fill_zero();
    std::vector<std::string> inputs = kInputs;
    inputs[missing].clear();
    Feeds without = feeds;
    without.erase(without.begin() + static_cast<int64_t>(missing));
    const auto y = run_op_on(make_op("LSTMUnitGradientGradient", inputs, kOutputs, arguments({})), without);
    const auto expected = run_op_on(make_op("LSTMUnitGradientGradient", kInputs, kOutputs, arguments({})), zero);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(compare(y[i], expected[i], 0), "") << missing << kOutputs[i];
  }
}

TEST(LstmUnitSecond, BadInputIsNamed) {
  const auto error = [](size_t input, const Tensor& value) {
    Feeds feeds = second_feeds<float>({4, 3});
    feeds[input].second = value;
    return error_of([&] { run_op_on(make_op("LSTMUnitGradientGradient", kInputs, kOutputs), feeds); });
  };
  expect_contains(error(4, normal<float>({4, 2})), "C must be [4, 3] as C_prev is, but is [4, 2]");
  expect_contains(error(5, normal<float>({3, 4})), "dH must be [4, 3] as C_prev is, but is [3, 4]");
  expect_contains(error(7, normal<float>({4})), "dH_prev_grad must be [4, 3] as C_prev is, but is [4]");
  expect_contains(error(9, normal<float>({4, 3})), "dgates_grad must be [4, 12] as gates is, but is [4, 3]");
  expect_contains(error(1, normal<float>({4, 3})), "gates must be [4, 12], four times the 3 states");
  expect_contains(error(2, integers<int32_t>({4}, -2, -1)), "seq_lengths has -");
  expect_contains(error_of([] {
                    run_op_on(make_op("LSTMUnitGradientGradient", kInputs, kOutputs, arguments({0, false, false})),
                              second_feeds<float>({4, 3}));
                  }),
                  "seq_lengths and timestep must be given where sequence_lengths is 1, and only there; it is 0");
}

// A gradient operator's inputs may have no names.
TEST(LstmUnitSecond, WhatIsReadMustBeThere) {
  const auto error = [](const std::string& type, std::vector<std::string> inputs, int missing) {
    inputs[missing].clear();
    OperatorDef def = make_op(type, inputs, {"a", "b"}, arguments({}));
    def.set_is_gradient_op(true);
    return error_of([&] { run_op_on(def, second_feeds<float>({2, 3})); });
  };
  for (const int i : {0, 1, 2, 3, 4}) expect_contains(error("LSTMUnitGradientGradient", kInputs, i), "");
  expect_contains(error("LSTMUnitGradientGradient", kInputs, 1), "input 1 (\"gates\") has an empty name");
  const std::vector<std::string> first = {"dH", "C_prev", "gates", "lengths", "t", "dC", "C", "dH", "dC"};
  for (const int i : {0, 1, 2, 3, 4, 6}) expect_contains(error("LSTMUnitGradient", first, i), "LSTMUnitGradient");
  expect_contains(error("LSTMUnitGradient", first, 0), "input 0 (\"H_prev\") has an empty name");
}

TEST(LstmUnitSecond, ThereAreNoThirdOnes) {
  NetDef net = subject_of({1, 1}, {}, {"H"}).net;
  const auto gradient_of = [&](const std::string& target) {
    const GradientRequest request{.targets = {{target, ""}}, .wanted = {"gates"}, .stop = {}};
    return add_gradient_operators(net, request).gradients.at("gates").dense;
  };
  const std::string second = gradient_of(gradient_of("H"));
  expect_contains(error_of([&] { gradient_of(second); }), "third derivatives of LSTMUnit are not written");
}

}  // namespace
}  // namespace stepnet::testing
