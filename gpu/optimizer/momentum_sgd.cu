// CUDA kernels for MomentumSGD and MomentumSGDUpdate. Meaning: see operators/optimizer/momentum_sgd.cc.
#include "gpu/loops/scalar.h"
#include "operators/optimizer/momentum.h"

namespace stepnet::gpu_momentum_sgd {
namespace {

template <class T>
void momentum_sgd(const MomentumArgs& args, gpu::In<T> grad, gpu::In<T> momentum, const Tensor& lr, gpu::Out<T> step,
                  gpu::Out<T> new_momentum, Call& call) {
  const gpu::Scalar rate(lr);
  gpu::each(call, grad.size, [=] __device__(size_t i) {
    momentum_run(args, static_cast<T>(rate.value()), 1, grad.data + i, momentum.data + i, step.data + i,
                 new_momentum.data + i);
  });
}

template <class T>
void momentum_sgd_update(const MomentumArgs& args, gpu::In<T> grad, gpu::In<T> momentum, const Tensor& lr,
                         gpu::In<T> param, gpu::Out<T> step, gpu::Out<T> new_momentum, gpu::Out<T> new_param,
                         Call& call) {
  const gpu::Scalar rate(lr);
  gpu::each(call, grad.size, [=] __device__(size_t i) {
    momentum_run(args, static_cast<T>(rate.value()), 1, grad.data + i, momentum.data + i, step.data + i,
                 new_momentum.data + i, param.data + i, new_param.data + i);
  });
}

REGISTER(momentum_sgd_cuda) { return cuda<MomentumArgs>("MomentumSGD", momentum_sgd<float>, momentum_sgd<double>); }
REGISTER(momentum_sgd_update_cuda) {
  return cuda<MomentumArgs>("MomentumSGDUpdate", momentum_sgd_update<float>, momentum_sgd_update<double>);
}

}  // namespace
}  // namespace stepnet::gpu_momentum_sgd
