// Second derivatives of GRUUnit against differences of its first ones.
#include "core/gradient_check.h"
#include "core/io/text.h"
#include "core/passes/gradients.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {
namespace {

struct Options {
  bool drop = false;
  bool lengths = true;
};
const Options kOptions[] = {{}, {true, true}, {false, false}};

std::vector<Argument> arguments(const Options& o) {
  return {make_arg("drop_states", o.drop), make_arg("sequence_lengths", o.lengths)};
}

OperatorDef unit(const Options& o) {
  std::vector<std::string> inputs = {"H_prev", "gates"};
  if (o.lengths) inputs.emplace_back("lengths");
  inputs.emplace_back("t");
  return make_op("GRUUnit", inputs, {"H"}, arguments(o));
}

GradientSubject subject_of(const Shape& states, const Options& o) {
  const int64_t d = states.at(-1), rows = states.size_between(0, states.rank() - 1);
  GradientSubject subject;
  *subject.net.add_op() = unit(o);
  subject.feeds = {{"H_prev", normal<double>(states, 1)},
                   {"gates", normal<double>(states.with(states.rank() - 1, 3 * d), 3, 0, 2)},
                   {"t", Tensor::of<int32_t>({1}, {1})}};
  if (o.lengths) subject.feeds["lengths"] = integers<int32_t>({rows}, 1, 3, 4);
  subject.outputs = {"H"};
  subject.inputs = {"H_prev", "gates"};
  return subject;
}

std::string second_order_of(const GradientSubject& subject) {
  GradientCheckOptions options;
  options.order = 2;
  return check_gradients(subject, options).str();
}

TEST(GruUnitSecond, IsTheDifferenceOfFirstDerivatives) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 3, 2}, Shape{4, 1}, Shape{0, 2}, Shape{2, 0}})
      EXPECT_EQ(second_order_of(subject_of(states, o)), "") << states.str();
}

TEST(GruUnitSecond, OfTwoSteps) {
  GradientSubject subject = subject_of({2, 2}, {false, false});
  const NetDef more = parse_net_text(R"(
    op { type: 'GRUUnit' input: 'H' input: 'more' input: 't' output: 'H2' arg { name: 'sequence_lengths' i: 0 } }
    op { type: 'Mul' input: 'H2' input: 'H' output: 'loss' })",
                                     "test");
  for (const OperatorDef& op : more.op()) *subject.net.add_op() = op;
  subject.feeds["more"] = normal<double>({2, 6}, 9);
  subject.inputs.emplace_back("more");
  subject.outputs = {"loss"};
  EXPECT_EQ(second_order_of(subject), "");
}

const std::vector<std::string> kInputs = {"H_prev", "gates", "lengths", "t", "dH", "dH_prev_grad", "dgates_grad"};
const std::vector<std::string> kOutputs = {"to_H_prev", "to_gates", "to_dH"};

template <class T>
Feeds second_feeds(const Shape& states) {
  const int64_t rows = states[0], d = states[1];
  Feeds feeds;
  for (const std::string& name : kInputs)
    feeds.emplace_back(name, normal<T>(name.find("gates") == 0 || name == "dgates_grad" ? Shape{rows, 3 * d} : states,
                                       feeds.size() + 1));
  feeds[2].second = integers<int32_t>({rows}, 1, 3, 4);
  feeds[3].second = Tensor::of<int32_t>({1}, {1});
  return feeds;
}

TEST(GruUnitSecond, FloatIsCloseToDouble) {
  const OperatorDef def = make_op("GRUUnitGradientGradient", kInputs, kOutputs, arguments({}));
  const auto wide = run_op_on(def, second_feeds<double>({40, 30}));
  const auto narrow = run_op_on(def, second_feeds<float>({40, 30}));
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(compare(narrow[i], wide[i], 1e-5), "") << kOutputs[i];
}

TEST(GruUnitSecond, MissingGradientsAreZeros) {
  Feeds feeds = second_feeds<double>({3, 2});
  for (const size_t missing : {5, 6}) {
    Feeds zero = feeds;
    zero[missing].second.fill_zero();
    std::vector<std::string> inputs = kInputs;
    inputs[missing].clear();
    Feeds without = feeds;
    without.erase(without.begin() + static_cast<int64_t>(missing));
    const auto y = run_op_on(make_op("GRUUnitGradientGradient", inputs, kOutputs, arguments({})), without);
    const auto expected = run_op_on(make_op("GRUUnitGradientGradient", kInputs, kOutputs, arguments({})), zero);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(compare(y[i], expected[i], 0), "") << missing << kOutputs[i];
  }
}

TEST(GruUnitSecond, BadInputIsNamed) {
  const auto error = [](size_t input, const Tensor& value) {
    Feeds feeds = second_feeds<float>({4, 3});
    feeds[input].second = value;
    return error_of([&] { run_op_on(make_op("GRUUnitGradientGradient", kInputs, kOutputs), feeds); });
  };
  expect_contains(error(4, normal<float>({3, 4})), "dH must be [4, 3] as H_prev is, but is [3, 4]");
  expect_contains(error(5, normal<float>({4})), "dH_prev_grad must be [4, 3] as H_prev is, but is [4]");
  expect_contains(error(6, normal<float>({4, 3})), "dgates_grad must be [4, 9] as gates is, but is [4, 3]");
  expect_contains(error(1, normal<float>({4, 3})), "gates must be [4, 9], three times the 3 states");
  expect_contains(error(2, integers<int32_t>({4}, -2, -1)), "seq_lengths has -");
  expect_contains(error_of([] {
                    run_op_on(make_op("GRUUnitGradientGradient", kInputs, kOutputs, arguments({false, false})),
                              second_feeds<float>({4, 3}));
                  }),
                  "seq_lengths and timestep must be given where sequence_lengths is 1, and only there; it is 0");
}

// A gradient operator's inputs may have no names.
TEST(GruUnitSecond, WhatIsReadMustBeThere) {
  const auto error = [](const std::string& type, std::vector<std::string> inputs, int missing) {
    inputs[missing].clear();
    OperatorDef def = make_op(type, inputs, {"a", "b"}, arguments({}));
    def.set_is_gradient_op(true);
    return error_of([&] { run_op_on(def, second_feeds<float>({2, 3})); });
  };
  for (const int i : {0, 1, 2, 3, 4}) expect_contains(error("GRUUnitGradientGradient", kInputs, i), "");
  expect_contains(error("GRUUnitGradientGradient", kInputs, 4), "input 4 (\"dH\") has an empty name");
  const std::vector<std::string> first = {"H_prev", "gates", "lengths", "t", "dH", "dH"};
  for (const int i : {0, 1, 2, 3, 5}) expect_contains(error("GRUUnitGradient", first, i), "GRUUnitGradient");
  expect_contains(error("GRUUnitGradient", first, 5), "dH, input 5, is missing");
}

TEST(GruUnitSecond, ThereAreNoThirdOnes) {
  NetDef net = subject_of({1, 1}, {}).net;
  const auto gradient_of = [&](const std::string& target) {
    const GradientRequest request{.targets = {{target, ""}}, .wanted = {"gates"}, .stop = {}};
    return add_gradient_operators(net, request).gradients.at("gates").dense;
  };
  const std::string second = gradient_of(gradient_of("H"));
  expect_contains(error_of([&] { gradient_of(second); }), "third derivatives of GRUUnit are not written");
}

}  // namespace
}  // namespace stepnet::testing
