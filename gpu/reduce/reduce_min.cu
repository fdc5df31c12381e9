// CUDA kernels for ReduceMin and its gradient. Meaning and derivatives: see operators/reduce/reduce_min.cc.
#include "gpu/loops/reduce_axes.h"

namespace stepnet::gpu_reduce_min {
namespace {

template <class T>
void forward(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const ReductionType<T> first = greatest_value<ReductionType<T>>();
  gpu::reduce_values(a, x, y, call, first, gpu::Same(), gpu::ExtremeOf<std::less<>>(), gpu::Same());
}

REGISTER(reduce_min_cuda) {
  return cuda<ReduceArgs>("ReduceMin", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}
REGISTER(reduce_min_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceMinGradient", gpu::extreme_gradient<float>, gpu::extreme_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_reduce_min
