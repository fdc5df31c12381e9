// CUDA kernels for DotProduct and its gradient. Meaning and derivatives: see operators/reduce/dot_product.cc.
#include "gpu/loops/pair_rows.h"

namespace stepnet::gpu_dot_product {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z) {
  gpu::sum_pairs(
      call, x, y, z, [] __device__(double a, double b) { return a * b; }, 1.0);
}

template <class T>
void gradient(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::Out<T> dx, gpu::Out<T> dy) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  if (dx.data) gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = y[i] * dz[i / size]; });
  if (dy.data) gpu::each(call, dy.size, [=] __device__(size_t i) { dy[i] = x[i] * dz[i / size]; });
}

REGISTER(dot_product_cuda) { return cuda("DotProduct", forward<float>, forward<double>); }
REGISTER(dot_product_gradient_cuda) { return cuda("DotProductGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_dot_product
