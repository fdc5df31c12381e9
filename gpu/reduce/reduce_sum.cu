// CUDA kernels for ReduceSum and its gradient. Meaning and derivatives: see operators/reduce/reduce_sum.cc.
#include "gpu/loops/reduce_axes.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_reduce_sum {
namespace {

template <class T>
void forward(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::reduce_values(a, x, y, call, 0, gpu::Same(), std::plus<double>(), gpu::Same());
}

template <class T>
void gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[place.find(i)]; });
}

REGISTER(reduce_sum_cuda) {
  return cuda<ReduceArgs>("ReduceSum", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(reduce_sum_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceSumGradient", gradient<float>, gradient<double>, gradient<float16>,
                          gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_reduce_sum
