// The tape in a program of its own: trains a small network on y = x^2, multiplies a vector by the Hessian of its loss,
// and keeps the values that backward reads somewhere else until it runs.
#include <cstdio>
#include <vector>

#include "stepnet/engine.h"
#include "stepnet/ops.h"
#include "stepnet/saved_value.h"

namespace {

namespace ops = stepnet::ops;
using stepnet::Tensor;
using stepnet::autograd::Variable;

struct Layer {
  Variable w, b;
  Layer(int64_t in, int64_t out)
      : w(ops::xavier_fill({}, {.shape = {out, in}})), b(Tensor::zeros(stepnet::DType::float32, {out})) {
    w.set_requires_grad();
    b.set_requires_grad();
  }
  Variable operator()(const Variable& x) const { return ops::fc(x, w, b); }
};

struct Network {
  Layer first{1, 16}, second{16, 1};
  Variable operator()(const Variable& x) const { return second(ops::tanh(first(x))); }
  std::vector<Variable> parameters() const { return {first.w, first.b, second.w, second.b}; }
};

Variable loss_of(const Network& net, const Variable& x, const Variable& y) {
  return ops::averaged_loss(ops::sqr(ops::sub(net(x), y)));
}

// One step of gradient descent.
void step(const Network& net, const Variable& loss) {
  stepnet::autograd::backward(loss);
  const stepnet::autograd::NoGrad no_grad;
  for (Variable& p : net.parameters()) {
    ops::add_(p, ops::scale(p.grad().dense, {.scale = -0.1f}));
    p.clear_grad();
  }
}

// v'Hv, where H is the matrix of the loss's second derivatives by a parameter and v is all ones.
double curvature(const Variable& loss, const Variable& parameter) {
  const Variable gradient = stepnet::autograd::grad({loss}, {parameter}, {.create_graph = true})[0].dense;
  const Variable product = stepnet::autograd::grad({ops::sum_elements(gradient)}, {parameter})[0].dense;
  return ops::sum_elements(product).value().item<double>();
}

// Saved values as plain vectors; a program would write them to a file, or make them smaller.
stepnet::autograd::SavedValueHooks elsewhere(int64_t& bytes) {
  struct Packed {
    stepnet::Shape shape;
    std::vector<float> elements;
  };
  return {[&bytes](const Tensor& value) -> std::any {
            const auto elements = value.span<float>();
            bytes += static_cast<int64_t>(value.bytes());
            return Packed{value.shape(), {elements.begin(), elements.end()}};
          },
          [](const std::any& object) {
            const auto& packed = std::any_cast<const Packed&>(object);
            return Tensor::of<float>(packed.shape, packed.elements);
          }};
}

}  // namespace

int main() {
  try {
    Tensor points = Tensor::empty(stepnet::DType::float32, {33, 1});
    for (int i = 0; i < 33; ++i) points.data<float>()[i] = static_cast<float>(i - 16) / 16;
    const Variable x(points), y = ops::sqr(x);
    const Network net;
    std::printf("loss before: %.6f\n", loss_of(net, x, y).value().item<double>());
    for (int i = 0; i < 1000; ++i) step(net, loss_of(net, x, y));
    std::printf("loss after: %.6f\n", loss_of(net, x, y).value().item<double>());
    std::printf("curvature: %.3f\n", curvature(loss_of(net, x, y), net.second.b));

    int64_t bytes = 0;
    const stepnet::autograd::SavedValueHooksScope scope(elsewhere(bytes));
    step(net, loss_of(net, x, y));
    std::printf("packed: %lld bytes\n", static_cast<long long>(bytes));
  } catch (const stepnet::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
