// MomentumSGD and MomentumSGDUpdate: gradient descent with momentum, lr POSITIVE.
//
//   plain:     m' = mu m + lr g,  step = m'
//   nesterov:  m' = mu m + lr g,  step = (1 + mu) m' - mu m     (Sutskever et al. 2013)
//
// Both write the step where the gradient was; MomentumSGDUpdate also sets param = param - step. No derivative: they
// change parameters.

#include "core/operator.h"
#include "core/parallel.h"

namespace stepnet {
namespace {

struct MomentumArgs {
  float momentum = 0;
  bool nesterov = false;
};

// Inputs grad, momentum, lr and, of the update, param.
void shape(const MomentumArgs&, ShapeCall& call) {
  for (const int i : {1, 3})
    if (call.known(0) && call.known(i))
      require(call.shape(i) == call.shape(0), "{} has shape {}, but grad {}", i == 1 ? "momentum" : "param",
              call.shape(i).str(), call.shape(0).str());
  if (call.known(2)) require(call.shape(2).size() == 1, "lr must be one value, but has shape {}", call.shape(2));
  call.set_like(0, 0);
  call.set_like(1, 1);
  call.set_like(2, 3);
}

// `update(i, step)` is called for each element after it is written.
template <class T, class Update>
void run(const MomentumArgs& args, In<T> grad, In<T> momentum, const Tensor& lr, Out<T> step, Out<T> new_momentum,
         const Update& update) {
  const T rate = static_cast<T>(lr.item<double>());
  const T mu = args.momentum;
  parallel_for(static_cast<int64_t>(grad.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T before = momentum[i];
      const T after = mu * before + rate * grad[i];
      new_momentum[i] = after;
      step[i] = args.nesterov ? (1 + mu) * after - mu * before : after;
      update(i, step[i]);
    }
  });
}

template <class T>
void momentum_sgd(const MomentumArgs& args, In<T> grad, In<T> momentum, const Tensor& lr, Out<T> step,
                  Out<T> new_momentum) {
  run<T>(args, grad, momentum, lr, step, new_momentum, [](int64_t, T) {});
}

template <class T>
void momentum_sgd_update(const MomentumArgs& args, In<T> grad, In<T> momentum, const Tensor& lr, In<T> param,
                         Out<T> step, Out<T> new_momentum, Out<T> new_param) {
  run<T>(args, grad, momentum, lr, step, new_momentum, [&](int64_t i, T s) { new_param[i] = param[i] - s; });
}

OpBuilder<MomentumArgs>& declare(OpBuilder<MomentumArgs>& spec) {
  return spec.arg("momentum", &MomentumArgs::momentum, 0.0f, "how much of the last step remains")
      .arg("nesterov", &MomentumArgs::nesterov, false, "look ahead by the momentum")
      .input("grad", "the gradient")
      .input("momentum", "the last step, of the gradient's shape")
      .input("lr", "the learning rate, one value, positive")
      .types({DType::float32, DType::float64})
      .shape(shape)
      .no_gradient("it changes parameters");
}

REGISTER(momentum_sgd) {
  auto spec = op<MomentumArgs>("MomentumSGD");
  return declare(spec)
      .doc("The step of gradient descent with momentum; another operator subtracts it from the parameter.")
      .output("output_grad", "the step")
      .output("output_momentum", "the momentum after the step")
      .in_place("grad", "output_grad")
      .in_place("momentum", "output_momentum")
      .cpu(momentum_sgd<float>, momentum_sgd<double>);
}

REGISTER(momentum_sgd_update) {
  auto spec = op<MomentumArgs>("MomentumSGDUpdate");
  return declare(spec)
      .doc("Gradient descent with momentum: subtracts the step from the parameter.")
      .input("param", "the parameter, of the gradient's shape")
      .output("output_grad", "the step")
      .output("output_momentum", "the momentum after the step")
      .output("output_param", "the parameter after the step")
      .in_place("grad", "output_grad")
      .in_place("momentum", "output_momentum")
      .in_place("param", "output_param")
      .cpu(momentum_sgd_update<float>, momentum_sgd_update<double>);
}

}  // namespace
}  // namespace stepnet
