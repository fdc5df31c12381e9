// Gradients of an LSTMUnit that shows the activations of its gates.
#include <cstring>

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

// With lengths, of which one is over.
TEST(LstmUnitActivated, GatesGiveTheStatesAgain) {
  const std::vector<std::string> inputs = {"h", "c", "gates", "lengths", "t"};
  const Feeds feeds = {{"h", normal<float>({3, 21}, 1)},
                       {"c", normal<float>({3, 21}, 2)},
                       {"gates", normal<float>({3, 84}, 3)},
                       {"lengths", Tensor::of<int32_t>({3}, {2, 1, 5})},
                       {"t", Tensor::of<int32_t>({1}, {1})}};
  for (const bool drop : {false, true}) {
    const std::vector<Argument> args = {make_arg("forget_bias", 1.5F), make_arg("drop_states", drop)};
    std::vector<Argument> first = args, again = args;
    first.push_back(make_arg("activated_gates", 1));
    again.push_back(make_arg("from_activated", 1));
    const std::vector<Tensor> made = run_op_on(make_op("LSTMUnit", inputs, {"H", "C", "active"}, first), feeds);
    Feeds given = feeds;
    given[2].second = made[2];
    const std::vector<Tensor> states = run_op_on(make_op("LSTMUnit", inputs, {"H", "C"}, again), given);
    for (const size_t i : {0, 1}) {
      EXPECT_EQ(compare(states[i], made[i], 1e-6), "") << drop;
      if (test_device().kind != DeviceKind::cpu) continue;  // whose compiler may round products before sums or not
      EXPECT_EQ(std::memcmp(states[i].raw(), made[i].raw(), made[i].bytes()), 0) << drop;
    }
  }
}

TEST(LstmUnitActivated, WhatDoesNotGoWithGivenGatesIsRefused) {
  const auto net_with = [](const std::vector<std::string>& outputs, const std::vector<Argument>& more) {
    std::vector<Argument> args = {make_arg("sequence_lengths", 0)};
    args.insert(args.end(), more.begin(), more.end());
    return make_op("LSTMUnit", kInputs, outputs, args);
  };
  const Feeds feeds = {{"h", normal<float>({2, 3}, 1)},
                       {"c", normal<float>({2, 3}, 2)},
                       {"gates", normal<float>({2, 12}, 3)},
                       {"t", Tensor::of<int32_t>({1}, {0})}};
  const auto refusal_of = [&](const OperatorDef& op) { return error_of([&] { run_op_on(op, feeds); }); };
  const Argument given = make_arg("from_activated", 1), asked = make_arg("activated_gates", 1);
  EXPECT_NE(refusal_of(net_with({"H", "C", "active"}, {given, asked}))
                .find("activated_gates asks for what from_activated says is given"),
            std::string::npos);
  NetDef net;
  *net.add_op() = net_with({"H", "C"}, {given});
  GradientRequest request;
  request.targets = {{"H", ""}};
  request.wanted = {"gates"};
  EXPECT_NE(error_of([&] { add_gradient_operators(net, request); }).find("with from_activated there is no derivative"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::lstm_unit_activated_test
