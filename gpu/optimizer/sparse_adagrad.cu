// CUDA kernel for SparseAdagrad. Meaning: see operators/optimizer/sparse_adagrad.cc.
#include "gpu/loops/optimizer.h"
#include "operators/optimizer/adagrad.h"

namespace stepnet::gpu_sparse_adagrad {
namespace {

// Table and moment are in place: the outputs hold their values.
template <class T>
void sparse_adagrad(const AdagradArgs& args, gpu::Out<T> param, gpu::Out<T> moment, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  gpu::for_each_row(call, call.in(2), table[0], row, gpu::RateOf<T>{gpu::Scalar(call.in(4))},
                    [=] __device__(T rate, int64_t k, int64_t at, int64_t column) {
                      T* const p = param.data + at * row + column;
                      T* const h = moment.data + at * row + column;
                      adagrad_run(args, rate, 1, grad.data + k * row + column, p, h, p, h);
                    });
}

REGISTER(sparse_adagrad_cuda) {
  return cuda<AdagradArgs>("SparseAdagrad", sparse_adagrad<float>, sparse_adagrad<double>);
}

}  // namespace
}  // namespace stepnet::gpu_sparse_adagrad
