// CUDA kernel for SparseAdam. Meaning: see operators/optimizer/sparse_adam.cc.
#include "gpu/loops/optimizer.h"
#include "operators/optimizer/adam.h"

namespace stepnet::gpu_sparse_adam {
namespace {

// The step's numbers; a negative iteration is noted, and counts as the first.
template <class T>
struct StepOf {
  AdamArgs args;
  gpu::Scalar lr, iter;
  gpu::Bounds bounds;

  __device__ AdamStep<T> operator()() const {
    const double t = iter.value();
    if (t < 0) bounds.report(static_cast<int64_t>(t), INT64_MAX);
    return AdamStep<T>(args, lr.value(), t < 0 ? 0 : t);
  }
};

// Parameter and moments are in place: the outputs hold their values.
template <class T>
void sparse_adam(const AdamArgs& args, gpu::Out<T> param, gpu::Out<T> m1, gpu::Out<T> m2, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(4));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  const StepOf<T> start{args, gpu::Scalar(call.in(5)), gpu::Scalar(call.in(6)), gpu::bounds(call, "iter")};
  gpu::for_each_row(call, call.in(3), table[0], row, start,
                    [=] __device__(const AdamStep<T>& step, int64_t k, int64_t at, int64_t column) {
                      T* const p = param.data + at * row + column;
                      T* const a = m1.data + at * row + column;
                      T* const b = m2.data + at * row + column;
                      step(1, grad.data + k * row + column, p, a, b, p, a, b);
                    });
}

REGISTER(sparse_adam_cuda) { return cuda<AdamArgs>("SparseAdam", sparse_adam<float>, sparse_adam<double>); }

}  // namespace
}  // namespace stepnet::gpu_sparse_adam
