// MomentumSGD and MomentumSGDUpdate: gradient descent with momentum, lr POSITIVE.
//
//   plain:     m' = mu m + lr g,  step = m'
//   nesterov:  m' = mu m + lr g,  step = (1 + mu) m' - mu m     (Sutskever et al. 2013)
//
// Both write the step where the gradient was; MomentumSGDUpdate also sets param = param - step. No derivative: they
// change parameters.

#include "core/operator/flops.h"
#include "operators/optimizer/momentum.h"

namespace stepnet {
namespace {

// Inputs grad, momentum, lr and, of the update, param.
void shape(const MomentumArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "momentum", 0, "grad");
  require_same_shape(call, 3, "param", 0, "grad");
  require_one_value(call, 2, "lr");
  call.set_like(0, 0);
  call.set_like(1, 1);
  call.set_like(2, 3);
}

template <class T>
void momentum_sgd(const MomentumArgs& args, In<T> grad, In<T> momentum, const Tensor& lr, Out<T> step,
                  Out<T> new_momentum) {
  const T rate = static_cast<T>(lr.item<double>());
  parallel_for(static_cast<int64_t>(grad.size()), 1, [&](int64_t begin, int64_t end) {
    momentum_run(args, rate, end - begin, grad.data() + begin, momentum.data() + begin, step.data() + begin,
                 new_momentum.data() + begin);
  });
}

template <class T>
void momentum_sgd_update(const MomentumArgs& args, In<T> grad, In<T> momentum, const Tensor& lr, In<T> param,
                         Out<T> step, Out<T> new_momentum, Out<T> new_param) {
  const T rate = static_cast<T>(lr.item<double>());
  parallel_for(static_cast<int64_t>(grad.size()), 1, [&](int64_t begin, int64_t end) {
    momentum_run(args, rate, end - begin, grad.data() + begin, momentum.data() + begin, step.data() + begin,
                 new_momentum.data() + begin, param.data() + begin, new_param.data() + begin);
  });
}

constexpr const char* kGrad = "the gradient, any shape";
constexpr const char* kMomentum = "the last step, of the gradient's shape";

REGISTER(momentum_sgd) {
  auto spec = op<MomentumArgs>("MomentumSGD");
  return declare_momentum(spec, kGrad, kMomentum)
      .doc(
          "The step of gradient descent with momentum, plain or by Nesterov; another operator subtracts it from the "
          "parameter.")
      .output("output_grad", "the step")
      .output("output_momentum", "the momentum after the step")
      .in_place("grad", "output_grad")
      .in_place("momentum", "output_momentum")
      .shape(shape)
      .flops([](const auto& a, const ShapeCall& c) { return input_size(c, 0) * (a.nesterov ? 6 : 3); })
      .cpu(momentum_sgd<float>, momentum_sgd<double>)
      .example({"grad=2,3", "momentum=2,3", "lr=1:0.125"}, {"momentum=0.75"})
      .example({"grad=2,3", "momentum=2,3", "lr=float,1:0.125"}, {"momentum=0.75", "nesterov=1"})
      .example({"grad=0", "momentum=0", "lr=1:0.125"});
}

REGISTER(momentum_sgd_update) {
  auto spec = op<MomentumArgs>("MomentumSGDUpdate");
  return declare_momentum(spec, kGrad, kMomentum)
      .doc("Gradient descent with momentum, plain or by Nesterov: subtracts the step from the parameter.")
      .input("param", "the parameter, of the gradient's shape")
      .output("output_grad", "the step")
      .output("output_momentum", "the momentum after the step")
      .output("output_param", "the parameter after the step")
      .in_place("grad", "output_grad")
      .in_place("momentum", "output_momentum")
      .in_place("param", "output_param")
      .shape(shape)
      .flops([](const auto& a, const ShapeCall& c) { return input_size(c, 0) * (a.nesterov ? 7 : 4); })
      .cpu(momentum_sgd_update<float>, momentum_sgd_update<double>)
      .example({"grad=2,3", "momentum=2,3", "lr=1:0.125", "param=2,3"}, {"momentum=0.75"})
      .example({"grad=2,3", "momentum=2,3", "lr=float,1:0.125", "param=2,3"}, {"momentum=0.75", "nesterov=1"})
      .example({"grad=1", "momentum=1", "lr=1:0.125", "param=1"});
}

}  // namespace
}  // namespace stepnet
