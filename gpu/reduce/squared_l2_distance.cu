// CUDA kernels for SquaredL2Distance and its gradient. Meaning and derivatives: see
// operators/reduce/squared_l2_distance.cc.
#include "gpu/loops/pair_rows.h"

namespace stepnet::gpu_squared_l2_distance {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z) {
  gpu::sum_pairs(
      call, x, y, z, [] __device__(double a, double b) { return (a - b) * (a - b); }, 0.5);
}

template <class T>
void gradient(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::Out<T> dx, gpu::Out<T> dy) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  gpu::each(call, x.size, [=] __device__(size_t i) {
    const T slope = (x[i] - y[i]) * dz[i / size];
    if (dx.data) dx[i] = slope;
    if (dy.data) dy[i] = -slope;
  });
}

REGISTER(squared_l2_distance_cuda) { return cuda("SquaredL2Distance", forward<float>, forward<double>); }
REGISTER(squared_l2_distance_gradient_cuda) {
  return cuda("SquaredL2DistanceGradient", gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_squared_l2_distance
