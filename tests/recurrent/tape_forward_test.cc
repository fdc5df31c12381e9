// What recurrent layers on the tape keep where no gradient can be wanted: no more than networks that only run forward.
#include <functional>

#include "core/net/expansions.h"
#include "tests/recurrent/tape_layers.h"

namespace stepnet::autograd::testing::tape_forward_test {
namespace {

constexpr int64_t kSteps = 1000, kGates = kSteps * 2 * 16 * 8;  // bytes of [T, B, 4H]

std::vector<Variable> run_layer(const Layer& l, const std::string& type, const std::vector<Variable>& inputs) {
  return run(type, inputs, l.args);
}

std::vector<Variable> constants(const Layer& l) {
  std::vector<Variable> all;
  for (const std::string& name : l.inputs) all.emplace_back(l.feeds.at(name).clone());
  return all;
}

int64_t peak_of(const std::function<void()>& fn) {
  const int64_t before = live_bytes();
  allocator(Device{}).reset_peak();
  fn();
  return allocator(Device{}).counters().peak - before;
}

class TapeLayersForward : public ::testing::TestWithParam<const char*> {};

TEST_P(TapeLayersForward, KeepNothingForBackward) {
  const std::string type = GetParam();
  const Layer l = layer(type, kSteps);
  const std::vector<Variable> inputs = leaves(l.feeds, l.inputs), fixed = constants(l);
  const std::vector<Variable> recorded = run_layer(l, type, inputs);
  const auto expect_less = [&](const std::vector<Variable>& given) {
    std::vector<Variable> outputs;
    EXPECT_LE(peak_of([&] { outputs = run_layer(l, type, given); }), kGates / 2);
    ASSERT_EQ(outputs.size(), recorded.size());
    for (size_t k = 0; k < outputs.size(); ++k) {
      ASSERT_EQ(outputs[k].defined(), recorded[k].defined());
      if (!outputs[k].defined()) continue;
      EXPECT_FALSE(outputs[k].requires_grad());
      EXPECT_TRUE(same(outputs[k].value(), recorded[k].value())) << k;
    }
  };
  expect_less(fixed);
  const NoGrad no_grad;
  expect_less(inputs);
}

INSTANTIATE_TEST_SUITE_P(Types, TapeLayersForward, ::testing::Values("RNN", "GRU", "LSTM"));

// An input that requires a gradient reaches no output: nothing is recorded, and nothing kept.
TEST(TapeLayersForwardNets, WithoutAWayToAnOutputKeepNothing) {
  const Layer l = layer("LSTM", kSteps);
  const NetDef net = net_from(op_text("StopGradient", {"given"}, {"X"}) + l.text);
  Names names = l.inputs;
  names[0] = "given";
  std::vector<Variable> inputs = constants(l);
  inputs[0] = Variable(l.feeds.at("X").clone(), true);
  const NetFunction f(net, names, l.outputs);
  std::vector<Variable> outputs;
  EXPECT_LE(peak_of([&] { outputs = f(inputs); }), kGates / 2 + kSteps * 2 * 3 * 8);
  EXPECT_FALSE(outputs[0].requires_grad());
}

// A net that has its gradient operators in it keeps what these read.
TEST(TapeLayersForwardNets, WithGradientOperatorsKeepWhatTheseRead) {
  const Layer l = layer("LSTM", 5);
  NetDef net = net_from(l.text);
  expand_net(net);
  GradientRequest request;
  request.targets.emplace_back("Y", "dY");
  request.wanted = {"w_hh"};
  const std::string gradient = add_gradient_operators(net, request).gradients.at("w_hh").dense;
  const std::vector<Variable> trained = leaves(l.feeds, l.inputs);
  const Variable dy(numbers({5, 2, 4}, 9));
  const Variable y = run_layer(l, "LSTM", trained)[0];
  const Tensor expected = grad({y}, {trained[4]}, {.grad_outputs = {dy}})[0].value();
  Names names = l.inputs;
  names.emplace_back("dY");
  std::vector<Variable> inputs = constants(l);
  inputs.push_back(dy);
  EXPECT_TRUE(same(NetFunction(net, names, {gradient})(inputs)[0].value(), expected));
}

}  // namespace
}  // namespace stepnet::autograd::testing::tape_forward_test
