// CUDA kernels for the operators of operators/pointwise/sigmoids.cc, where their meaning and derivatives stand.
#include "operators/pointwise/sigmoids.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_sigmoids {
namespace {

// exp of a negative number only, so that nothing overflows.
template <class T>
struct SigmoidValue {
  __host__ __device__ gpu::Accumulate<T> operator()(T x) const {
    const gpu::Accumulate<T> v = x, e = exp(v < 0 ? v : -v);
    return (v < 0 ? e : 1) / (1 + e);
  }
};
template <class T>
void sigmoid_forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, SigmoidValue<T>());
}

template <class T>
struct SigmoidSlope {
  __host__ __device__ auto operator()(T y, T dy) const { return dy * y * (1 - y); }
};
template <class T>
void sigmoid_gradient_of(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, y, dy, dx, SigmoidSlope<T>());
}

REGISTER(sigmoid_cuda) {
  return cuda("Sigmoid", sigmoid_forward<float>, sigmoid_forward<double>, sigmoid_forward<float16>,
              sigmoid_forward<bfloat16>);
}
REGISTER(sigmoid_gradient_cuda) {
  return cuda("SigmoidGradient", sigmoid_gradient_of<float>, sigmoid_gradient_of<double>, sigmoid_gradient_of<float16>,
              sigmoid_gradient_of<bfloat16>);
}

template <class T>
struct TanhValue {
  __host__ __device__ auto operator()(T x) const { return tanh(static_cast<gpu::Accumulate<T>>(x)); }
};
template <class T>
void tanh_forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, TanhValue<T>());
}

template <class T>
struct TanhSlope {
  __host__ __device__ auto operator()(T y, T dy) const { return dy * (1 - y * y); }
};
template <class T>
void tanh_gradient_of(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, y, dy, dx, TanhSlope<T>());
}

REGISTER(tanh_cuda) {
  return cuda("Tanh", tanh_forward<float>, tanh_forward<double>, tanh_forward<float16>, tanh_forward<bfloat16>);
}
REGISTER(tanh_gradient_cuda) {
  return cuda("TanhGradient", tanh_gradient_of<float>, tanh_gradient_of<double>, tanh_gradient_of<float16>,
              tanh_gradient_of<bfloat16>);
}

template <class T>
void softsign_forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, SoftsignValue<gpu::Accumulate<T>>());
}

template <class T>
void softsign_gradient_of(Call& call, gpu::In<T> x, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, x, dy, dx, SoftsignSlope<gpu::Accumulate<T>>());
}

REGISTER(softsign_cuda) {
  return cuda("Softsign", softsign_forward<float>, softsign_forward<double>, softsign_forward<float16>,
              softsign_forward<bfloat16>);
}
REGISTER(softsign_gradient_cuda) {
  return cuda("SoftsignGradient", softsign_gradient_of<float>, softsign_gradient_of<double>,
              softsign_gradient_of<float16>, softsign_gradient_of<bfloat16>);
}

template <class T>
void hard_sigmoid_forward(const HardSigmoidArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, HardSigmoidValue<gpu::Accumulate<T>>{a.alpha, a.beta});
}

template <class T>
void hard_sigmoid_gradient_of(const HardSigmoidArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, HardSigmoidSlope<gpu::Accumulate<T>>{a.alpha});
}

REGISTER(hard_sigmoid_cuda) {
  return cuda<HardSigmoidArgs>("HardSigmoid", hard_sigmoid_forward<float>, hard_sigmoid_forward<double>,
                               hard_sigmoid_forward<float16>, hard_sigmoid_forward<bfloat16>);
}
REGISTER(hard_sigmoid_gradient_cuda) {
  return cuda<HardSigmoidArgs>("HardSigmoidGradient", hard_sigmoid_gradient_of<float>, hard_sigmoid_gradient_of<double>,
                               hard_sigmoid_gradient_of<float16>, hard_sigmoid_gradient_of<bfloat16>);
}

// exp of a negative number only, so that nothing overflows.
template <class T>
__device__ T logistic(T x) {
  const T e = exp(-fabs(x));
  return (x < 0 ? e : T(1)) / (1 + e);
}

template <class T>
void swish_forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i];
    y[i] = v * logistic(v);
  });
}

template <class T>
void swish_gradient_of(Call& call, gpu::In<T> x, const Tensor&, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i], s = logistic(v);
    dx[i] = dy[i] * s * (1 + v * (1 - s));
  });
}

Registration swish_named(const char* type) {
  return cuda(type, swish_forward<float>, swish_forward<double>, swish_forward<float16>, swish_forward<bfloat16>);
}
REGISTER(swish_cuda) { return swish_named("Swish"); }
REGISTER(silu_cuda) { return swish_named("Silu"); }
REGISTER(swish_gradient_cuda) {
  return cuda("SwishGradient", swish_gradient_of<float>, swish_gradient_of<double>, swish_gradient_of<float16>,
              swish_gradient_of<bfloat16>);
}

template <class T>
void gelu_forward(const GeluArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  if (a.fast_gelu) return gpu::map(call, x, y, FastGeluValue<gpu::Accumulate<T>>());
  gpu::map(call, x, y, GeluValue<gpu::Accumulate<T>>());
}

template <class T>
void gelu_gradient_of(const GeluArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::Out<T> dx, Call& call) {
  if (a.fast_gelu) return gpu::map(call, dy, x, dx, FastGeluSlope<gpu::Accumulate<T>>());
  gpu::map(call, dy, x, dx, GeluSlope<gpu::Accumulate<T>>());
}

REGISTER(gelu_cuda) {
  return cuda<GeluArgs>("Gelu", gelu_forward<float>, gelu_forward<double>, gelu_forward<float16>,
                        gelu_forward<bfloat16>);
}
REGISTER(gelu_gradient_cuda) {
  return cuda<GeluArgs>("GeluGradient", gelu_gradient_of<float>, gelu_gradient_of<double>, gelu_gradient_of<float16>,
                        gelu_gradient_of<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_sigmoids
