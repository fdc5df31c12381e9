// Higher derivatives of LSTMUnit against differences of lower ones.
#include "tests/operators/unit_orders_test.h"

namespace stepnet::testing::lstm_unit_orders_test {
namespace {

const Unit kUnit = {"LSTMUnit", 4};

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

TEST(LstmUnitOrders, IsTheDifferenceOfFirstDerivatives) {
  for (const Options& o : kOptions)
    for (const Shape& states : {Shape{1, 3, 2}, Shape{4, 1}, Shape{0, 2}, Shape{2, 0}})
      EXPECT_EQ(wrong_up_to(2, subject_of(states, o, {"H", "C"})), "") << states.str();
}

TEST(LstmUnitOrders, OfOneOutputAlone) {
  for (const char* only : {"H", "C"}) EXPECT_EQ(wrong_up_to(2, subject_of({3, 2}, {0.5}, {only})), "") << only;
}

// C of the first step is an input of the second one, and of both gradients.
TEST(LstmUnitOrders, OfTwoSteps) {
  GradientSubject subject = subject_of({2, 2}, {0.5, false, false}, {"H", "C"});
  add_step(subject, kUnit, R"(
    op { type: 'LSTMUnit' input: 'H' input: 'C' input: 'more' input: 't' output: 'H2' output: 'C2'
         arg { name: 'sequence_lengths' i: 0 } }
    op { type: 'Mul' input: 'H2' input: 'C2' output: 'loss' })");
  EXPECT_EQ(wrong_up_to(2, subject), "");
}

TEST(LstmUnitOrders, ThirdDerivativesAreTheDifferences) {
  for (const Options& o : kOptions) EXPECT_EQ(wrong_up_to(3, subject_of({3, 2}, o, {"H", "C"})), "");
}

// Of the gradient as an operator of its own, whose gates are values, not sums.
TEST(LstmUnitOrders, OfActivatedGates) {
  const OperatorDef def = make_op(
      "LSTMUnitGradient", {"H_prev", "C_prev", "gates", "t", "H", "C", "dH", "dC"}, {"dH_prev", "dC_prev", "dgates"},
      {make_arg("sequence_lengths", false), make_arg("activated_gates", true), make_arg("forget_bias", 2.0F)});
  Feeds feeds = {{"gates", uniform<double>({3, 8}, 0.1, 0.9)}, {"t", Tensor::of<int32_t>({1}, {1})}};
  for (const char* name : {"H_prev", "C_prev", "H", "C", "dH", "dC"})
    feeds.emplace_back(name, normal<double>({3, 2}, feeds.size()));
  EXPECT_EQ(check_gradient(def, feeds, {"C_prev", "gates", "C", "dH", "dC"}), "");
}

TEST(LstmUnitOrders, FloatIsCloseToDouble) {
  expect_float_close_to_double(subject_of({40, 30}, {0.5, false, true}, {"H", "C"}));
}

TEST(LstmUnitOrders, WhatIsReadMustBeThere) {
  const std::vector<std::string> inputs = {"H_prev", "C_prev", "gates", "lengths", "t", "H", "C", "dH", "dC"};
  for (const size_t i : {0, 1, 2, 3, 4, 6}) expect_contains(missing_error(kUnit, inputs, i), "LSTMUnitGradient");
  expect_contains(missing_error(kUnit, inputs, 0), "input 0 (\"H_prev\") has an empty name");
}

}  // namespace
}  // namespace stepnet::testing::lstm_unit_orders_test
