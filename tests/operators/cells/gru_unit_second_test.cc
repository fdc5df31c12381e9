// Second derivatives of GRUUnit against differences of its first ones.
#include "tests/operators/unit_second_test.h"

namespace stepnet::testing::gru_unit_second_test {
namespace {

const Unit kUnit = {"GRUUnit",
                    3,
                    {"H_prev", "gates", "lengths", "t", "dH", "dH_prev_grad", "dgates_grad"},
                    {"to_H_prev", "to_gates", "to_dH"}};

struct Options {
  bool drop = false;
  bool lengths = true;
};
const Options kOptions[] = {{}, {true, true}, {false, false}};

std::vector<Argument> arguments(const Options& o) {
  return {make_arg("drop_states", o.drop), make_arg("sequence_lengths", o.lengths)};
}

GradientSubject subject_of(const Shape& states, const Options& o) {
  return unit_subject(kUnit, {"H_prev", "gates"}, states, o.lengths, arguments(o), {"H"});
}

TEST(GruUnitSecond, IsTheDifferenceOfFirstDerivatives) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 3, 2}, Shape{4, 1}, Shape{0, 2}, Shape{2, 0}})
      EXPECT_EQ(second_order_of(subject_of(states, o)), "") << states.str();
}

TEST(GruUnitSecond, OfTwoSteps) {
  GradientSubject subject = subject_of({2, 2}, {false, false});
  add_step(subject, kUnit, R"(
    op { type: 'GRUUnit' input: 'H' input: 'more' input: 't' output: 'H2' arg { name: 'sequence_lengths' i: 0 } }
    op { type: 'Mul' input: 'H2' input: 'H' output: 'loss' })");
  EXPECT_EQ(second_order_of(subject), "");
}

TEST(GruUnitSecond, FloatIsCloseToDouble) { expect_float_close_to_double(kUnit, arguments({})); }

TEST(GruUnitSecond, MissingGradientsAreZeros) { expect_missing_are_zeros(kUnit, {5, 6}, arguments({})); }

TEST(GruUnitSecond, BadInputIsNamed) {
  const auto error = [](size_t input, const Tensor& value) { return second_error(kUnit, input, value); };
  expect_contains(error(4, normal<float>({3, 4})), "dH must be [4, 3] as H_prev is, but is [3, 4]");
  expect_contains(error(5, normal<float>({4})), "dH_prev_grad must be [4, 3] as H_prev is, but is [4]");
  expect_contains(error(6, normal<float>({4, 3})), "dgates_grad must be [4, 9] as gates is, but is [4, 3]");
  expect_contains(error(1, normal<float>({4, 3})), "gates must be [4, 9], three times the 3 states");
  expect_contains(error(2, integers<int32_t>({4}, -2, -1)), "seq_lengths has -");
  expect_contains(error_of([] {
                    run_op_on(kUnit.second(arguments({false, false})), second_feeds<float>(kUnit, {4, 3}));
                  }),
                  "seq_lengths and timestep must be given where sequence_lengths is 1, and only there; it is 0");
}

TEST(GruUnitSecond, WhatIsReadMustBeThere) {
  const auto error = [](const std::string& type, const std::vector<std::string>& inputs, size_t missing) {
    return missing_error(kUnit, type, inputs, missing, arguments({}));
  };
  for (const size_t i : {0, 1, 2, 3, 4})
    expect_contains(error("GRUUnitGradientGradient", kUnit.inputs, i), "GRUUnitGradientGradient");
  expect_contains(error("GRUUnitGradientGradient", kUnit.inputs, 4), "input 4 (\"dH\") has an empty name");
  const std::vector<std::string> first = {"H_prev", "gates", "lengths", "t", "dH", "dH"};
  for (const size_t i : {0, 1, 2, 3, 5}) expect_contains(error("GRUUnitGradient", first, i), "GRUUnitGradient");
  expect_contains(error("GRUUnitGradient", first, 5), "dH, input 5, is missing");
}

TEST(GruUnitSecond, ThereAreNoThirdOnes) { expect_no_third_derivatives(kUnit, subject_of({1, 1}, {}).net); }

}  // namespace
}  // namespace stepnet::testing::gru_unit_second_test
