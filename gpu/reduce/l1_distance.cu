// CUDA kernels for L1Distance and its gradient. Meaning and derivatives: see operators/reduce/l1_distance.cc.
#include "gpu/loops/pair_rows.h"

namespace stepnet::gpu_l1_distance {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z) {
  gpu::sum_pairs(
      call, x, y, z, [] __device__(double a, double b) { return std::abs(a - b); }, 1.0);
}

template <class T>
void gradient(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::Out<T> dx, gpu::Out<T> dy) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  gpu::each(call, x.size, [=] __device__(size_t i) {
    const T given = dz[i / size], slope = x[i] > y[i] ? given : x[i] < y[i] ? -given : T(0);
    if (dx.data) dx[i] = slope;
    if (dy.data) dy[i] = -slope;
  });
}

REGISTER(l1_distance_cuda) { return cuda("L1Distance", forward<float>, forward<double>); }
REGISTER(l1_distance_gradient_cuda) { return cuda("L1DistanceGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_l1_distance
