// CUDA kernel for Pow. Meaning and derivative: see operators/pointwise/pow.cc.
#include "operators/pointwise/pow.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_pow {
namespace {

template <class T>
void power(const Call& call, gpu::In<T> x, gpu::Accumulate<T> e, gpu::Out<T> y) {
  if (e == 1) return gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i]; });
  if (e == 2) return gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i] * x[i]; });
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = Power<gpu::Accumulate<T>>()(x[i], e); });
}

template <class T>
void forward(const PowArgs& a, gpu::In<T> x, gpu::In<T> exponent, gpu::Out<T> y, Call& call) {
  if (a.exponent) return power(call, x, *a.exponent, y);
  gpu::binary<Power<gpu::Accumulate<T>>>(a, x, exponent, y, call);
}

REGISTER(pow_cuda) {
  return cuda<PowArgs>("Pow", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_pow
