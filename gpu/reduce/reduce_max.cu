// CUDA kernels for ReduceMax and its gradient. Meaning and derivatives: see operators/reduce/reduce_max.cc.
#include "gpu/loops/reduce_axes.h"

namespace stepnet::gpu_reduce_max {
namespace {

template <class T>
void forward(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const ReductionType<T> first = least_value<ReductionType<T>>();
  gpu::reduce_values(a, x, y, call, first, gpu::Same(), gpu::ExtremeOf<std::greater<>>(), gpu::Same());
}

REGISTER(reduce_max_cuda) {
  return cuda<ReduceArgs>("ReduceMax", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}
REGISTER(reduce_max_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceMaxGradient", gpu::extreme_gradient<float>, gpu::extreme_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_reduce_max
