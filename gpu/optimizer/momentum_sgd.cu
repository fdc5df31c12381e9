// CUDA kernels for MomentumSGD, MomentumSGDUpdate and SparseMomentumSGDUpdate. Meaning: see
// operators/optimizer/momentum_sgd.cc.
#include "operators/optimizer/momentum_sgd.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/scalar.h"

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

// Momentum and table are in place: the outputs hold their values.
template <class T>
void sparse_update(const MomentumArgs& args, gpu::In<T> grad, gpu::Out<T> step, gpu::Out<T> momentum, gpu::Out<T> param,
                   Call& call) {
  const Shape& table = call.in(3).shape();
  const int64_t row = table.size_between(1, table.rank());
  gpu::for_each_row(call, call.in(4), table[0], row, gpu::RateOf<T>{gpu::Scalar(call.in(2))},
                    [=] __device__(T rate, int64_t k, int64_t at, int64_t column) {
                      T* const m = momentum.data + at * row + column;
                      T* const p = param.data + at * row + column;
                      const int64_t from = k * row + column;
                      momentum_run(args, rate, 1, grad.data + from, m, step.data + from, m, p, p);
                    });
}

REGISTER(sparse_momentum_sgd_update_cuda) {
  return cuda<MomentumArgs>("SparseMomentumSGDUpdate", sparse_update<float>, sparse_update<double>);
}

}  // namespace
}  // namespace stepnet::gpu_momentum_sgd
