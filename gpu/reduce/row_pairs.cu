// CUDA kernels for the operators of operators/reduce/row_pairs.cc, where their meaning and derivatives stand.
#include "operators/reduce/row_pairs.h"

#include "gpu/loops/pair_rows.h"

namespace stepnet::gpu_row_pairs {
namespace {

template <class T>
void dot_product_forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z) {
  gpu::sum_pairs(
      call, x, y, z, [] __device__(double a, double b) { return a * b; }, 1.0);
}

template <class T>
void dot_product_gradient_of(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::Out<T> dx, gpu::Out<T> dy) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  if (dx.data) gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = y[i] * dz[i / size]; });
  if (dy.data) gpu::each(call, dy.size, [=] __device__(size_t i) { dy[i] = x[i] * dz[i / size]; });
}

REGISTER(dot_product_cuda) { return cuda("DotProduct", dot_product_forward<float>, dot_product_forward<double>); }
REGISTER(dot_product_gradient_cuda) {
  return cuda("DotProductGradient", dot_product_gradient_of<float>, dot_product_gradient_of<double>);
}

// X - Y, unless nobody wants it.
template <class T>
void write_difference(const Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> difference) {
  if (difference.data) gpu::each(call, x.size, [=] __device__(size_t i) { difference[i] = x[i] - y[i]; });
}

template <class T>
void l1_distance_forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z, gpu::Out<T> difference) {
  write_difference(call, x, y, difference);
  gpu::sum_pairs(
      call, x, y, z, [] __device__(double a, double b) { return std::abs(a - b); }, 1.0);
}

template <class T>
void l1_distance_gradient_of(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::Out<T> dx, gpu::Out<T> dy) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  gpu::each(call, x.size, [=] __device__(size_t i) {
    const T given = dz[i / size], slope = x[i] > y[i] ? given : x[i] < y[i] ? -given : T(0);
    if (dx.data) dx[i] = slope;
    if (dy.data) dy[i] = -slope;
  });
}

REGISTER(l1_distance_cuda) { return cuda("L1Distance", l1_distance_forward<float>, l1_distance_forward<double>); }
REGISTER(l1_distance_gradient_cuda) {
  return cuda("L1DistanceGradient", l1_distance_gradient_of<float>, l1_distance_gradient_of<double>);
}

template <class T>
void squared_l2_distance_forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z, gpu::Out<T> difference) {
  write_difference(call, x, y, difference);
  gpu::sum_pairs(
      call, x, y, z, [] __device__(double a, double b) { return (a - b) * (a - b); }, 0.5);
}

template <class T>
void squared_l2_distance_gradient_of(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::Out<T> dx,
                                     gpu::Out<T> dy) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  gpu::each(call, x.size, [=] __device__(size_t i) {
    const T slope = (x[i] - y[i]) * dz[i / size];
    if (dx.data) dx[i] = slope;
    if (dy.data) dy[i] = -slope;
  });
}

REGISTER(squared_l2_distance_cuda) {
  return cuda("SquaredL2Distance", squared_l2_distance_forward<float>, squared_l2_distance_forward<double>);
}
REGISTER(squared_l2_distance_gradient_cuda) {
  return cuda("SquaredL2DistanceGradient", squared_l2_distance_gradient_of<float>,
              squared_l2_distance_gradient_of<double>);
}

}  // namespace
}  // namespace stepnet::gpu_row_pairs
