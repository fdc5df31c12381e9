// CUDA kernel for Pow. Meaning and derivative: see operators/pow.cc.
#include "operators/pow.h"

#include "gpu/elementwise.h"

namespace stepnet::gpu_pow {
namespace {

template <class T>
void power(const Call& call, gpu::In<T> x, T e, gpu::Out<T> y) {
  if (e == T(1)) return gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i]; });
  if (e == T(2)) return gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i] * x[i]; });
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = Power<T>()(x[i], e); });
}

template <class T>
void forward(const PowArgs& a, gpu::In<T> x, gpu::In<T> exponent, gpu::Out<T> y, Call& call) {
  if (a.exponent) return power(call, x, static_cast<T>(*a.exponent), y);
  gpu::binary<Power<T>>(a, x, exponent, y, call);
}

REGISTER(pow_cuda) { return cuda<PowArgs>("Pow", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_pow
