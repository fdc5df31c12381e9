// Second derivatives of LSTMUnit against differences of its first ones.
#include "tests/operators/unit_second_test.h"

namespace stepnet::testing::lstm_unit_second_test {
namespace {

const Unit kUnit = {"LSTMUnit",
                    4,
                    {"C_prev", "gates", "lengths", "t", "C", "dH", "dC", "dH_prev", "dC_prev_grad", "dgates_grad"},
                    {"to_C_prev", "to_gates", "to_C", "to_dH", "to_dC"}};

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

GradientSubject subject_of(const Shape& states, const Options& o, const std::vector<std::string>& differentiated) {
  GradientSubject subject =
      unit_subject(kUnit, {"H_prev", "C_prev", "gates"}, states, o.lengths, arguments(o), {"H", "C"});
  subject.outputs = differentiated;
  return subject;
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
  GradientSubject subject = subject_of({2, 2}, {0.5, false, false}, {"H", "C"});
  add_step(subject, kUnit, R"(
    op { type: 'LSTMUnit' input: 'H' input: 'C' input: 'more' input: 't' output: 'H2' output: 'C2'
         arg { name: 'sequence_lengths' i: 0 } }
    op { type: 'Mul' input: 'H2' input: 'C2' output: 'loss' })");
  EXPECT_EQ(second_order_of(subject), "");
}

TEST(LstmUnitSecond, FloatIsCloseToDouble) { expect_float_close_to_double(kUnit, arguments({0.5})); }

TEST(LstmUnitSecond, MissingGradientsAreZeros) { expect_missing_are_zeros(kUnit, {5, 6, 7, 8, 9}, arguments({})); }

TEST(LstmUnitSecond, BadInputIsNamed) {
  const auto error = [](size_t input, const Tensor& value) { return second_error(kUnit, input, value); };
  expect_contains(error(4, normal<float>({4, 2})), "C must be [4, 3] as C_prev is, but is [4, 2]");
  expect_contains(error(5, normal<float>({3, 4})), "dH must be [4, 3] as C_prev is, but is [3, 4]");
  expect_contains(error(7, normal<float>({4})), "dH_prev_grad must be [4, 3] as C_prev is, but is [4]");
  expect_contains(error(9, normal<float>({4, 3})), "dgates_grad must be [4, 12] as gates is, but is [4, 3]");
  expect_contains(error(1, normal<float>({4, 3})), "gates must be [4, 12], four times the 3 states");
  expect_contains(error(2, integers<int32_t>({4}, -2, -1)), "seq_lengths has -");
  expect_contains(error_of([] {
                    run_op_on(kUnit.second(arguments({0, false, false})), second_feeds<float>(kUnit, {4, 3}));
                  }),
                  "seq_lengths and timestep must be given where sequence_lengths is 1, and only there; it is 0");
}

TEST(LstmUnitSecond, WhatIsReadMustBeThere) {
  const auto error = [](const std::string& type, const std::vector<std::string>& inputs, size_t missing) {
    return missing_error(kUnit, type, inputs, missing, arguments({}));
  };
  for (const size_t i : {0, 1, 2, 3, 4})
    expect_contains(error("LSTMUnitGradientGradient", kUnit.inputs, i), "LSTMUnitGradientGradient");
  expect_contains(error("LSTMUnitGradientGradient", kUnit.inputs, 1), "input 1 (\"gates\") has an empty name");
  const std::vector<std::string> first = {"dH", "C_prev", "gates", "lengths", "t", "dC", "C", "dH", "dC"};
  for (const size_t i : {0, 1, 2, 3, 4, 6}) expect_contains(error("LSTMUnitGradient", first, i), "LSTMUnitGradient");
  expect_contains(error("LSTMUnitGradient", first, 0), "input 0 (\"H_prev\") has an empty name");
}

TEST(LstmUnitSecond, ThereAreNoThirdOnes) { expect_no_third_derivatives(kUnit, subject_of({1, 1}, {}, {"H"}).net); }

}  // namespace
}  // namespace stepnet::testing::lstm_unit_second_test
