// Higher derivatives of GRUUnit against differences of lower ones.
#include "tests/operators/unit_orders_test.h"

namespace stepnet::testing::gru_unit_orders_test {
namespace {

const Unit kUnit = {"GRUUnit", 3};

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

TEST(GruUnitOrders, IsTheDifferenceOfFirstDerivatives) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 3, 2}, Shape{4, 1}, Shape{0, 2}, Shape{2, 0}})
      EXPECT_EQ(wrong_up_to(2, subject_of(states, o)), "") << states.str();
}

TEST(GruUnitOrders, OfTwoSteps) {
  GradientSubject subject = subject_of({2, 2}, {false, false});
  add_step(subject, kUnit, R"(
    op { type: 'GRUUnit' input: 'H' input: 'more' input: 't' output: 'H2' arg { name: 'sequence_lengths' i: 0 } }
    op { type: 'Mul' input: 'H2' input: 'H' output: 'loss' })");
  EXPECT_EQ(wrong_up_to(2, subject), "");
}

TEST(GruUnitOrders, ThirdDerivativesAreTheDifferences) {
  for (const Options& o : kOptions) EXPECT_EQ(wrong_up_to(3, subject_of({3, 2}, o)), "");
}

TEST(GruUnitOrders, FloatIsCloseToDouble) { expect_float_close_to_double(subject_of({40, 30}, {})); }

TEST(GruUnitOrders, WhatIsReadMustBeThere) {
  const std::vector<std::string> inputs = {"H_prev", "gates", "lengths", "t", "H", "dH"};
  for (const size_t i : {0, 1, 2, 3, 5}) expect_contains(missing_error(kUnit, inputs, i), "GRUUnitGradient");
  expect_contains(missing_error(kUnit, inputs, 5), "dH, input 5, is missing");
}

}  // namespace
}  // namespace stepnet::testing::gru_unit_orders_test
