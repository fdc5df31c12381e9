// Gradients of an LSTMUnit that shows the activations of its gates.
#include "stepnet/gradients.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::lstm_unit_activated_test {
namespace {

const std::vector<std::string> kInputs = {"h", "c", "gates", "t"};

std::vector<Argument> arguments() { return {make_arg("sequence_lengths", 0), make_arg("activated_gates", 1)}; }

// The first line of what the gradient pass says.
std::string refusal(const std::vector<std::string>& outputs, const std::string& target) {
  NetDef net;
  *net.add_op() = make_op("LSTMUnit", kInputs, outputs, arguments());
  GradientRequest request;
  request.targets = {{target, ""}};
  request.wanted = {"gates"};
  const std::string text = error_of([&] { add_gradient_operators(net, request); });
  return text.substr(0, text.find('\n'));
}

// They are read where they are, in place of the gates or not.
TEST(LstmUnitActivated, InABlobOfTheirOwn) {
  const Feeds feeds = {{"h", normal<double>({2, 3}, 1)},
                       {"c", normal<double>({2, 3}, 2)},
                       {"gates", normal<double>({2, 12}, 3)},
                       {"t", Tensor::of<int32_t>({1}, {0})}};
  EXPECT_EQ(check_gradient(make_op("LSTMUnit", kInputs, {"H", "C", "active"}, arguments()), feeds, {"c", "gates"}, 1e-7,
                           1e-5, {"H", "C"}),
            "");
}

TEST(LstmUnitActivated, WhatIsNotThereIsSaid) {
  EXPECT_EQ(refusal({"H", "C"}, "H"),
            "LSTMUnit: with activated_gates its gradient reads the output \"activated\", which is not there");
  EXPECT_EQ(refusal({"H", "C", "active"}, "active"), "LSTMUnit: there is no derivative of the output \"activated\"");
}

}  // namespace
}  // namespace stepnet::testing::lstm_unit_activated_test
