// What tests of the tape share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/autograd/op_node.h"
#include "stepnet/device.h"
#include "stepnet/engine.h"
#include "stepnet/record.h"

namespace stepnet::autograd::testing {

inline Variable var(const Shape& shape, std::initializer_list<double> values, bool requires_grad = true) {
  return Variable(Tensor::of<double>(shape, values), requires_grad);
}
inline Variable var(std::initializer_list<double> values, bool requires_grad = true) {
  return var({static_cast<int64_t>(values.size())}, values, requires_grad);
}
inline Variable constant(std::initializer_list<double> values) { return var(values, false); }

// Operators with one output and no arguments, or numpy's broadcasting.
inline Variable apply(const std::string& type, const std::vector<Variable>& inputs, Place place = Place::here()) {
  return run(type, inputs, {}, {}, place)[0];
}
inline Variable broadcast(const std::string& type, const Variable& a, const Variable& b) {
  return run(type, {a, b}, {make_arg("broadcast", 1)})[0];
}
inline Variable apply_in_place(const std::string& type, const std::vector<Variable>& inputs,
                               Place place = Place::here()) {
  return run(type, inputs, {}, {.in_place = true}, place)[0];
}
inline Variable sum_of(const Variable& v) { return apply("SumElements", {v}); }

inline std::vector<double> values_of(const Variable& v) {
  const auto values = v.value().span<double>();
  return {values.begin(), values.end()};
}
inline std::vector<double> grad_of(const Variable& v) {
  return v.grad().defined() ? values_of(v.grad().dense) : std::vector<double>{};
}
using Numbers = std::vector<double>;

// Bytes that the CPU's allocator has handed out.
inline int64_t live_bytes() { return allocator(Device{}).counters().live; }

// A suite whose tests leave no bytes behind: no variable, node or saved value owns itself.
class TapeTest : public ::testing::Test {
 protected:
  void SetUp() override { bytes_ = live_bytes(); }
  void TearDown() override { EXPECT_EQ(live_bytes(), bytes_) << "bytes are left behind"; }

 private:
  int64_t bytes_ = 0;
};

// How often something has happened since this was made.
class Count {
 public:
  explicit Count(TapeEvent event) : event_(event), before_(counted(event)) {}
  int64_t operator()() const { return counted(event_) - before_; }

 private:
  TapeEvent event_;
  int64_t before_;
};

// The node of an operator's output, to look at what it saved.
inline OpNode& node_of(const Variable& v) { return dynamic_cast<OpNode&>(*v.grad_fn()); }
inline bool keeps_input(const Variable& v, int i) { return node_of(v).saved_input(i) != nullptr; }
inline bool keeps_output(const Variable& v, int o) { return node_of(v).saved_output(o) != nullptr; }

// An operator of the test's own: its output is `value`, and `fn` makes the gradients of the inputs.
class OwnNode : public Node {
 public:
  using Fn = std::function<Gradients(const Gradients&, const NodeRun&)>;
  OwnNode(std::vector<Edge> edges, const Tensor& value, Fn fn, Place place)
      : Node(std::move(edges), {TensorType::of(value.dtype(), value.shape())}, place), fn_(std::move(fn)) {}
  std::string name() const override { return "OwnGradient"; }
  Gradients apply(Gradients gradients, const NodeRun& run) override { return fn_(gradients, run); }

 private:
  Fn fn_;
};
inline Variable own(const std::vector<Variable>& inputs, const Variable& value, OwnNode::Fn fn,
                    Place place = Place::here()) {
  auto node = std::make_shared<OwnNode>(gradient_edges(inputs), value.value(), std::move(fn), place);
  return variable_of(value.value(), std::move(node), 0);
}

}  // namespace stepnet::autograd::testing
