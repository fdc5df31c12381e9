// CUDA kernels for ReduceL2 and its gradient. Meaning and derivatives: see operators/reduce/reduce_l2.cc. Squares are
// added in double, so norms of floats do not overflow here.
#include "gpu/loops/reduce_axes.h"

namespace stepnet::gpu_reduce_l2 {
namespace {

struct Square {
  constexpr double operator()(double v) const { return v * v; }
};
struct Root {
  __host__ __device__ double operator()(double v) const { return sqrt(v); }
};

template <class T>
void forward(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::reduce_values(a, x, y, call, 0, Square(), std::plus<double>(), Root());
}

template <class T>
void gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> dx, Call& call) {
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const size_t j = place.find(i);
    dx[i] = y[j] == 0 ? T(0) : x[i] / y[j] * dy[j];
  });
}

REGISTER(reduce_l2_cuda) { return cuda<ReduceArgs>("ReduceL2", forward<float>, forward<double>); }
REGISTER(reduce_l2_gradient_cuda) { return cuda<ReduceArgs>("ReduceL2Gradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_reduce_l2
