// CUDA kernel for SparseMomentumSGDUpdate. Meaning: see operators/optimizer/sparse_momentum_sgd_update.cc.
#include "gpu/loops/optimizer.h"
#include "operators/optimizer/momentum.h"

namespace stepnet::gpu_sparse_momentum_sgd_update {
namespace {

// Momentum and table are in place: the outputs hold their values.
template <class T>
void update(const MomentumArgs& args, gpu::In<T> grad, gpu::Out<T> step, gpu::Out<T> momentum, gpu::Out<T> param,
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
  return cuda<MomentumArgs>("SparseMomentumSGDUpdate", update<float>, update<double>);
}

}  // namespace
}  // namespace stepnet::gpu_sparse_momentum_sgd_update
