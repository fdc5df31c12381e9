// CUDA kernels for ReduceL1 and its gradient. Meaning and derivatives: see operators/reduce/reduce_l1.cc.
#include "gpu/loops/reduce_axes.h"

namespace stepnet::gpu_reduce_l1 {
namespace {

struct Absolute {
  __host__ __device__ double operator()(double v) const { return fabs(v); }
};

template <class T>
void forward(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::reduce_values(a, x, y, call, 0, Absolute(), std::plus<double>(), gpu::Same());
}

template <class T>
void gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::Out<T> dx, Call& call) {
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const T up = dy[place.find(i)];
    dx[i] = x[i] > 0 ? up : x[i] < 0 ? -up : T(0);
  });
}

REGISTER(reduce_l1_cuda) { return cuda<ReduceArgs>("ReduceL1", forward<float>, forward<double>); }
REGISTER(reduce_l1_gradient_cuda) { return cuda<ReduceArgs>("ReduceL1Gradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_reduce_l1
