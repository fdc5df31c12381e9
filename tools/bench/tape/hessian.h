// The Hessian of a net of fully connected layers by its input, on the tape, and how many matrix products it takes.
//
// y = net(x), g = grad(y, x), and then for each input i the row grad(g, x) from ones in column i. The parameters
// require gradients, as in training. Trimmed, only x is asked for; untrimmed, the parameters too, which is what an
// engine does that runs every formula. The second kind of step goes on with a loss on y and all rows, and its gradient
// by every leaf. Threads: as Variable.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/engine.h"
#include "stepnet/random.h"
#include "stepnet/record.h"
#include "stepnet/tensor.h"

namespace stepnet::bench {

struct MlpSizes {
  int64_t layers = 7, inputs = 3, width = 256, outputs = 1, batch = 1000;
  int64_t rows(int64_t layer) const { return layer == layers - 1 ? outputs : width; }
  int64_t columns(int64_t layer) const { return layer == 0 ? inputs : width; }
};

// What runs take in matrix products.
struct ProductCount {
  int64_t calls = 0;
  double flops = 0;
  bool operator==(const ProductCount&) const = default;
};

struct HessianKind {
  bool trimmed = true;
  bool with_backward = false;
};

// Of L layers and d inputs: 2L + 2(L-1)d products trimmed and 3L + (4(L-1)+1)d untrimmed. Where the activation's second
// derivative is known to be 0, as Relu's is, what leads only there is left out: 2L and 3L + (2(L-1)+1)d, and 2L more
// for the gradient of the loss, in which the rows do not count. A product of layer l has FLOPs of its own.
inline ProductCount expected_products(const MlpSizes& s, HessianKind kind, bool has_curvature) {
  double all = 0, last = 0;
  for (int64_t l = 0; l < s.layers; ++l)
    all += last =
        2.0 * static_cast<double>(s.batch) * static_cast<double>(s.rows(l)) * static_cast<double>(s.columns(l));
  const int64_t layers = s.layers, d = s.inputs;
  const auto count = [&](int64_t whole, int64_t but_last, int64_t only_last) {
    return ProductCount{whole * layers + d * (but_last * (layers - 1) + only_last),
                        static_cast<double>(whole) * all +
                            static_cast<double>(d) *
                                (static_cast<double>(but_last) * (all - last) + static_cast<double>(only_last) * last)};
  };
  if (has_curvature) return kind.trimmed ? count(2, 2, 0) : count(3, 4, 1);
  const ProductCount sum = kind.trimmed ? count(2, 0, 0) : count(3, 2, 1);
  if (!kind.with_backward) return sum;
  const ProductCount more = count(2, 0, 0);
  return {sum.calls + more.calls, sum.flops + more.flops};
}

// A gradient of ones in column `column`, or everywhere if that is -1.
template <class T>
autograd::VariableGradient ones(const Shape& shape, int64_t column = -1, Device device = {}) {
  Tensor t = Tensor::zeros(dtype_of<T>(), shape);
  const auto values = t.template span<T>();
  for (int64_t i = 0; i < t.size(); ++i)
    if (column < 0 || i % shape.at(-1) == column) values[i] = T(1);
  return autograd::Variable(on_device(t, device));
}

template <class T>
class Mlp {
 public:
  // Its parameters and its input are on the device; they are the same numbers on each.
  Mlp(const MlpSizes& sizes, const std::string& activation, Device device = {}) : sizes_(sizes), device_(device) {
    activation_ = autograd::EagerOp::get({activation, {true}, {true}});
    for (int64_t l = 0; l < sizes.layers; ++l) {
      const double scale = 1.5 / std::sqrt(static_cast<double>(sizes.columns(l)));
      weights_.push_back(uniform({sizes.rows(l), sizes.columns(l)}, scale, 2 * l + 1));
      biases_.push_back(uniform({sizes.rows(l)}, scale, 2 * l + 2));
    }
    x_ = uniform({sizes.batch, sizes.inputs}, 1, 0);
    if (device.kind != DeviceKind::cpu) keep_seeds();
  }

  // Makes the ones that a Hessian starts from now, and not in every run.
  void keep_seeds() {
    if (!seeds_.empty()) return;
    seeds_.push_back(ones<T>({sizes_.batch, sizes_.outputs}, -1, device_));
    for (int64_t i = 0; i < sizes_.inputs; ++i) seeds_.push_back(ones<T>({sizes_.batch, sizes_.inputs}, i, device_));
  }

  const MlpSizes& sizes() const { return sizes_; }
  Device device() const { return device_; }
  const autograd::Variable& x() const { return x_; }
  std::vector<autograd::Variable> leaves() const {  // x is the first
    std::vector<autograd::Variable> all = {x_};
    all.insert(all.end(), weights_.begin(), weights_.end());
    all.insert(all.end(), biases_.begin(), biases_.end());
    return all;
  }
  // Ones for the value's gradient, if column is -1, or for that of one input. On a GPU they are made once, so that no
  // run copies them from the host.
  autograd::VariableGradient seed(int64_t column) const {
    if (!seeds_.empty()) return seeds_[static_cast<size_t>(column + 1)];
    return ones<T>({sizes_.batch, column < 0 ? sizes_.outputs : sizes_.inputs}, column);
  }
  autograd::Variable operator()(const autograd::Variable& x) const {
    autograd::Variable h = x;
    for (size_t l = 0; l < weights_.size(); ++l) {
      if (l > 0) h = autograd::run1(*activation_, {&h, 1});
      const autograd::Variable in[] = {h, weights_[l], biases_[l]};
      h = autograd::run1(*fc_, in);
    }
    return h;
  }

 private:
  autograd::Variable uniform(const Shape& shape, double scale, int64_t key) const {
    Tensor t = Tensor::empty(dtype_of<T>(), shape);
    uint64_t i = 0;
    for (T& v : t.template span<T>())
      v = static_cast<T>(scale * (2 * random_uniform(static_cast<uint64_t>(key), i++) - 1));
    return autograd::Variable(on_device(t, device_), true);
  }

  MlpSizes sizes_;
  Device device_;
  std::shared_ptr<const autograd::EagerOp> activation_;
  std::shared_ptr<const autograd::EagerOp> fc_ = autograd::EagerOp::get({"FC", {true, true, true}, {true}});
  std::vector<autograd::Variable> weights_, biases_;
  autograd::Variable x_;
  std::vector<autograd::VariableGradient> seeds_;
};

struct Hessian {
  autograd::Variable value;              // [batch, outputs]
  autograd::Variable gradient;           // [batch, inputs]
  std::vector<autograd::Variable> rows;  // of each input: [batch, inputs]
};

// The first derivatives at x plus a step in one input, for central differences.
inline std::vector<double> gradient_at(const Mlp<double>& net, int64_t input, double step) {
  Tensor moved = net.x().value().clone();
  const auto values = moved.span<double>();
  const auto stride = static_cast<size_t>(net.sizes().inputs);
  for (auto i = static_cast<size_t>(input); i < values.size(); i += stride) values[i] += step;
  const autograd::Variable x(std::move(moved), true), y = net(x);
  const autograd::Gradients g = autograd::grad({y}, {x}, {.grad_outputs = {ones<double>(y.shape())}});
  const auto d = g[0].value().span<double>();
  return {d.begin(), d.end()};
}

template <class T>
Hessian hessian(const Mlp<T>& net, HessianKind kind) {
  using autograd::Variable;
  Hessian h;
  h.value = net(net.x());
  const std::vector<Variable> wanted = kind.trimmed ? std::vector<Variable>{net.x()} : net.leaves();
  h.gradient = autograd::grad({h.value}, wanted, {.grad_outputs = {net.seed(-1)}, .create_graph = true})[0].dense;
  const int64_t d = net.sizes().inputs;
  for (int64_t i = 0; i < d; ++i) {
    const autograd::GradOptions options{
        .grad_outputs = {net.seed(i)},
        .create_graph = kind.with_backward,
        .keep_graph = i + 1 < d,
        .allow_unused = !kind.trimmed};  // no row depends on the biases of the last layer
    h.rows.push_back(autograd::grad({h.gradient}, wanted, options)[0].dense);
  }
  if (!kind.with_backward) return h;
  std::vector<Variable> squares = {autograd::run("Sqr", {h.value})[0]};
  Variable loss = autograd::run("SumElements", squares)[0];
  for (const Variable& row : h.rows) {
    const Variable part = autograd::run("SumElements", autograd::run("Sqr", {row}))[0];
    loss = autograd::run("Add", {loss, part})[0];
  }
  for (Variable& leaf : net.leaves()) leaf.clear_grad();
  autograd::backward(loss);
  return h;
}

}  // namespace stepnet::bench
