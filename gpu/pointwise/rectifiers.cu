// CUDA kernels for the operators of operators/pointwise/rectifiers.cc, where their meaning and derivatives stand.
#include "operators/pointwise/rectifiers.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"
#include "stepnet/half.h"

namespace stepnet::gpu_rectifiers {
namespace {

template <class T>
void relu_forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, ReluValue<T>());
}

template <class T>
struct ReluSlope {
  constexpr T operator()(T y, T dy) const { return y > T(0) ? dy : T(0); }
};
template <class T>
void relu_gradient_of(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, y, dy, dx, ReluSlope<T>());
}

REGISTER(relu_cuda) {
  return cuda("Relu", relu_forward<float>, relu_forward<double>, relu_forward<float16>, relu_forward<bfloat16>);
}
REGISTER(relu_gradient_cuda) {
  return cuda("ReluGradient", relu_gradient_of<float>, relu_gradient_of<double>, relu_gradient_of<float16>,
              relu_gradient_of<bfloat16>);
}

template <class T>
void leaky_relu_forward(const LeakyReluArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, LeakyReluValue<gpu::Accumulate<T>>{a.alpha});
}

template <class T>
void leaky_relu_gradient_of(const LeakyReluArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, LeakyReluSlope<gpu::Accumulate<T>>{a.alpha});
}

REGISTER(leaky_relu_cuda) {
  return cuda<LeakyReluArgs>("LeakyRelu", leaky_relu_forward<float>, leaky_relu_forward<double>,
                             leaky_relu_forward<float16>, leaky_relu_forward<bfloat16>);
}
REGISTER(leaky_relu_gradient_cuda) {
  return cuda<LeakyReluArgs>("LeakyReluGradient", leaky_relu_gradient_of<float>, leaky_relu_gradient_of<double>,
                             leaky_relu_gradient_of<float16>, leaky_relu_gradient_of<bfloat16>);
}

template <class T>
void elu_forward(const EluArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const auto alpha = static_cast<gpu::Accumulate<T>>(a.alpha);
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i];
    y[i] = v > 0 ? v : alpha * expm1(v);
  });
}

template <class T>
void elu_gradient_of(const EluArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, EluSlope<gpu::Accumulate<T>>{a.alpha});
}

REGISTER(elu_cuda) {
  return cuda<EluArgs>("Elu", elu_forward<float>, elu_forward<double>, elu_forward<float16>, elu_forward<bfloat16>);
}
REGISTER(elu_gradient_cuda) {
  return cuda<EluArgs>("EluGradient", elu_gradient_of<float>, elu_gradient_of<double>, elu_gradient_of<float16>,
                       elu_gradient_of<bfloat16>);
}

// exp of a negative number only, so that nothing overflows.
template <class T>
void softplus_forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const gpu::Accumulate<T> v = x[i];
    y[i] = (v > 0 ? v : 0) + log1p(exp(-fabs(v)));
  });
}

template <class T>
void softplus_gradient_of(Call& call, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::each(call, dx.size,
            [=] __device__(size_t i) { dx[i] = -dy[i] * expm1(-static_cast<gpu::Accumulate<T>>(y[i])); });
}

REGISTER(softplus_cuda) {
  return cuda("Softplus", softplus_forward<float>, softplus_forward<double>, softplus_forward<float16>,
              softplus_forward<bfloat16>);
}
REGISTER(softplus_gradient_cuda) {
  return cuda("SoftplusGradient", softplus_gradient_of<float>, softplus_gradient_of<double>,
              softplus_gradient_of<float16>, softplus_gradient_of<bfloat16>);
}

// Limits are rounded to the element type, so that what is clipped equals them.

template <class T>
void clip_forward(const ClipArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, ClipValue<gpu::Accumulate<T>>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

template <class T>
void clip_gradient_of(const ClipArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, ClipSlope<gpu::Accumulate<T>>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

REGISTER(clip_cuda) {
  return cuda<ClipArgs>("Clip", clip_forward<float>, clip_forward<double>, clip_forward<float16>,
                        clip_forward<bfloat16>);
}
REGISTER(clip_gradient_cuda) {
  return cuda<ClipArgs>("ClipGradient", clip_gradient_of<float>, clip_gradient_of<double>, clip_gradient_of<float16>,
                        clip_gradient_of<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_rectifiers
