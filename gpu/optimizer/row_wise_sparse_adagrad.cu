// CUDA kernel for RowWiseSparseAdagrad. Meaning: see operators/optimizer/row_wise_sparse_adagrad.cc.
#include "gpu/loops/optimizer.h"
#include "gpu/loops/reduce.h"
#include "operators/optimizer/adagrad.h"

namespace stepnet::gpu_row_wise_sparse_adagrad {
namespace {

// Table and moment are in place: the outputs hold their values. Each index's mean square comes first, then the moment
// that its row has with it, then the step.
template <class T>
void row_wise(const AdagradArgs& args, gpu::Out<T> param, gpu::Out<T> moment, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Tensor& indices = call.in(2);
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  Tensor scratch = gpu::workspace(call, dtype_of<T>(), {indices.size()});
  T* const moments = reinterpret_cast<T*>(scratch.raw());
  gpu::reduce(
      call, {indices.size(), row, 1}, 0.0,
      [=] __device__(size_t k, size_t j, size_t) {
        const double g = static_cast<double>(grad[k * row + j]);
        return g * g;
      },
      std::plus<double>(),
      [=] __device__(size_t k, size_t, double sum) {
        moments[k] = row > 0 ? static_cast<T>(sum / static_cast<double>(row)) : T(0);
      });
  const gpu::RateOf<T> lr{gpu::Scalar(call.in(4))};
  gpu::for_each_row(call, indices, table[0], 1, lr,
                    [=] __device__(T, int64_t k, int64_t at, int64_t) { moments[k] = moment[at] += moments[k]; });
  const T epsilon = args.epsilon;
  gpu::for_each_row(call, indices, table[0], row, lr, [=] __device__(T rate, int64_t k, int64_t at, int64_t column) {
    const T step = rate / (sqrt(moments[k]) + epsilon);
    param[at * row + column] += step * grad[k * row + column];
  });
}

REGISTER(row_wise_sparse_adagrad_cuda) {
  return cuda<AdagradArgs>("RowWiseSparseAdagrad", row_wise<float>, row_wise<double>);
}

}  // namespace
}  // namespace stepnet::gpu_row_wise_sparse_adagrad
