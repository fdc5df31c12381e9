#include "tools/bench/tape/double_backward.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>

#include "stepnet/engine.h"
#include "stepnet/error.h"
#include "stepnet/random.h"
#include "stepnet/record.h"
#include "stepnet/tensor.h"

namespace stepnet::bench {
namespace {

using autograd::Variable;

struct Sizes {
  int64_t rows, size;
  Device device;
};

Variable normal(const Sizes& s, const Shape& shape, uint64_t key) {
  Tensor values = Tensor::empty(DType::float32, shape);
  for (int64_t i = 0; i < values.size(); ++i)
    values.data<float>()[i] = static_cast<float>(random_normal(key, static_cast<uint64_t>(i)));
  return Variable(copied_to(values, s.device), true);
}

Variable constant(const Sizes& s, const Tensor& value) { return Variable(copied_to(value, s.device)); }

struct Case {
  std::vector<Variable> inputs;  // those that require gradients are differentiated
  std::vector<Argument> args = {};
  int outputs = 1;          // that the operator is asked for
  int differentiated = -1;  // the output that the loss is made of; -1: all of them
};

Case one_input(const Sizes& s) { return {{normal(s, {s.rows, s.size}, 1)}}; }

using Make = std::function<Case(const Sizes&)>;

Case lstm(const Sizes& s) {
  const Shape states{s.rows, s.size};
  const Variable timestep = constant(s, Tensor::of<int32_t>({1}, {0}));
  return {{normal(s, states, 1), normal(s, states, 2), normal(s, {s.rows, 4 * s.size}, 3), timestep},
          {make_arg("sequence_lengths", false)},
          2};
}

Case gru(const Sizes& s) {
  const Variable timestep = constant(s, Tensor::of<int32_t>({1}, {0}));
  return {{normal(s, {s.rows, s.size}, 1), normal(s, {s.rows, 3 * s.size}, 2), timestep},
          {make_arg("sequence_lengths", false)}};
}

Case layer_norm(const Sizes& s) {
  return {{normal(s, {s.rows, s.size}, 1), normal(s, {s.size}, 2), normal(s, {s.size}, 3)},
          {make_arg("elementwise_affine", true)},
          3,
          0};
}

Case loss(const Sizes& s) {
  Tensor labels = Tensor::zeros(DType::int32, {s.rows});
  for (int64_t n = 0; n < s.rows; ++n) labels.data<int32_t>()[n] = static_cast<int32_t>(n % s.size);
  return {{normal(s, {s.rows, s.size}, 1), constant(s, labels)}, {}, 2, 1};
}

const std::map<std::string, Make>& cases() {
  static const std::map<std::string, Make> cases = {
      {"LSTMUnit", lstm},
      {"GRUUnit", gru},
      {"LayerNorm", layer_norm},
      {"Softmax", one_input},
      {"LogSoftmax", one_input},
      {"Normalize", one_input},
      {"CosineSimilarity",
       [](const Sizes& s) {
         return Case{{normal(s, {s.rows, s.size}, 1), normal(s, {s.rows, s.size}, 2)}};
       }},
      {"SoftmaxWithLoss", loss}};
  return cases;
}

double milliseconds_since(std::chrono::steady_clock::time_point start, Device device) {
  if (device.kind != DeviceKind::cpu) allocator(device).synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Each output times constants, so that gradients are of all elements.
std::vector<Variable> weighted(const Sizes& s, const std::vector<Variable>& values) {
  std::vector<Variable> sums;
  for (size_t k = 0; k < values.size(); ++k) {
    const Variable weights = constant(s, normal({s.rows, s.size, {}}, values[k].shape(), 10 + k).value());
    sums.push_back(autograd::run("SumElements", {autograd::run("Mul", {values[k], weights})[0]})[0]);
  }
  return sums;
}

DoubleBackwardTimes run_step(const std::string& name, const Case& c, const Sizes& s) {
  std::vector<Variable> wanted;
  for (const Variable& v : c.inputs)
    if (v.requires_grad()) wanted.push_back(v);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Variable> outputs = autograd::run(name, c.inputs, c.args, {.outputs = c.outputs});
  if (c.differentiated >= 0) outputs = {outputs[c.differentiated]};
  const autograd::Gradients first =
      autograd::grad(weighted(s, outputs), wanted,
                     {.grad_outputs = {}, .create_graph = true, .keep_graph = true, .allow_unused = true});
  const double of_first = milliseconds_since(start, s.device);
  std::vector<Variable> gradients;
  for (const auto& g : first)
    if (g.defined() && g.dense.requires_grad()) gradients.push_back(g.dense);
  const std::vector<Variable> sums = weighted(s, gradients);
  const auto again = std::chrono::steady_clock::now();
  autograd::grad(sums, wanted, {.grad_outputs = {}, .create_graph = false, .keep_graph = false, .allow_unused = true});
  return {of_first, milliseconds_since(again, s.device)};
}

}  // namespace

std::vector<std::string> double_backward_names() {
  std::vector<std::string> names;
  for (const auto& c : cases()) names.push_back(c.first);
  return names;
}

DoubleBackwardTimes time_double_backward(const std::string& name, int64_t rows, int64_t size, int rounds,
                                         Device device) {
  const auto found = cases().find(name);
  require(found != cases().end(), "there is no operator {} to time", name);
  const Sizes sizes{rows, size, device};
  const Case c = found->second(sizes);
  DoubleBackwardTimes best{HUGE_VAL, HUGE_VAL};
  for (int round = 0; round <= rounds; ++round) {
    const DoubleBackwardTimes t = run_step(name, c, sizes);
    if (round == 0) continue;  // which binds operators and records derivatives
    best = {std::min(best.first, t.first), std::min(best.second, t.second)};
  }
  return best;
}

}  // namespace stepnet::bench
