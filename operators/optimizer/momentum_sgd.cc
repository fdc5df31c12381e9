// MomentumSGD and MomentumSGDUpdate: gradient descent with momentum, lr POSITIVE.
//
//   plain:     m' = mu m + lr g,  step = m'
//   nesterov:  m' = mu m + lr g,  step = (1 + mu) m' - mu m     (Sutskever et al. 2013)
//
// or with rate_last, as PyTorch has it; while lr stays the same, these are the same steps:
//
//   plain:     m' = mu m + g,  step = lr m'
//   nesterov:  m' = mu m + g,  step = lr (g + mu m')
//
// Both write the step where the gradient was; MomentumSGDUpdate also sets param = param - step. No derivative: they
// change parameters.

#include "operators/optimizer/momentum_sgd.h"

#include "core/operator/flops.h"

namespace stepnet::cpu_momentum_sgd {
namespace {

int momentum_flops(const MomentumArgs& args) { return !args.nesterov ? 3 : args.rate_last ? 5 : 6; }

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
      .flops([](const auto& a, const ShapeCall& c) { return input_size(c, 0) * momentum_flops(a); })
      .cpu(momentum_sgd<float>, momentum_sgd<double>)
      .example({"grad=2,3", "momentum=2,3", "lr=1:0.125"}, {"momentum=0.75"})
      .example({"grad=2,3", "momentum=2,3", "lr=float,1:0.125"}, {"momentum=0.75", "nesterov=1"})
      .example({"grad=2,3", "momentum=2,3", "lr=1:0.125"}, {"momentum=0.75", "rate_last=1"})
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
      .flops([](const auto& a, const ShapeCall& c) { return input_size(c, 0) * (momentum_flops(a) + 1); })
      .cpu(momentum_sgd_update<float>, momentum_sgd_update<double>)
      .example({"grad=2,3", "momentum=2,3", "lr=1:0.125", "param=2,3"}, {"momentum=0.75"})
      .example({"grad=2,3", "momentum=2,3", "lr=float,1:0.125", "param=2,3"}, {"momentum=0.75", "nesterov=1"})
      .example({"grad=1", "momentum=1", "lr=1:0.125", "param=1"});
}

// SparseMomentumSGDUpdate: MomentumSGDUpdate on the rows of a table that the gradient has, the table and its momentum
// in place, by the same formulas. lr POSITIVE. A row without a gradient keeps its momentum and does not
// move on with it. No derivative: it changes parameters.

void sparse_shape(const MomentumArgs&, ShapeCall& call) {
  require_same_shape(call, 1, "momentum", 3, "param");
  require_rows(call, 3, 4, 0);
  require_one_value(call, 2, "lr");
  call.set_like(0, 0);
  call.set_like(1, 1);
  call.set_like(2, 3);
}

// Momentum and table are in place: the outputs hold their values.
template <class T>
void sparse_update(const MomentumArgs& args, In<T> grad, const Tensor&, const Tensor& lr, const Tensor& table,
                   const Tensor& indices, Out<T> step, Out<T> momentum, Out<T> param) {
  const T rate = static_cast<T>(lr.item<double>());
  const int64_t row = table.shape().size_between(1, table.rank());
  for_each_row(indices, table.dim(0), 2 + static_cast<double>(row), [&](int64_t k, int64_t at) {
    T* const m = momentum.data() + at * row;
    T* const p = param.data() + at * row;
    momentum_run(args, rate, row, grad.data() + k * row, m, step.data() + k * row, m, p, p);
  });
}

REGISTER(sparse_momentum_sgd_update) {
  auto spec = op<MomentumArgs>("SparseMomentumSGDUpdate");
  return declare_momentum(spec, "the gradient of those rows: the indices' shape, then a row's",
                          "the last step, of the table's shape")
      .doc(
          "Gradient descent with momentum, plain or by Nesterov, on those rows of a table that the gradient has; all "
          "others stay as they are, their momentum too.")
      .input("param", "the table, [R, ...]")
      .input("indices", "any shape, K values from 0 to R - 1; each repetition is a step of its own, in order")
      .types({DType::int32, DType::int64})
      .output("output_grad", "the steps, of the gradient's shape")
      .output("output_momentum", "the momentum after the step")
      .output("output_param", "the table after the step")
      .in_place("grad", "output_grad")
      .must_be_in_place("momentum", "output_momentum")
      .must_be_in_place("param", "output_param")
      .shape(sparse_shape)
      .flops([](const auto& a, const ShapeCall& c) { return input_size(c, 0) * (momentum_flops(a) + 1); })
      .cpu(sparse_update<float>, sparse_update<double>)
      .example({"grad=3,2", "momentum=4,2", "lr=1:0.125", "param=4,2", "indices=int64,3:2,0,2"}, {"momentum=0.75"})
      .example({"grad=1,2", "momentum=3", "lr=float,1:0.125", "param=3", "indices=int32,1,2:1,2"},
               {"momentum=0.75", "nesterov=1"})
      .example({"grad=0,2", "momentum=3,2", "lr=1:0.125", "param=3,2", "indices=int64,0"});
}

}  // namespace
}  // namespace stepnet::cpu_momentum_sgd
