// CUDA kernels for the operators of operators/pointwise/arithmetic.cc, where their meaning and derivatives stand.
#include "operators/pointwise/arithmetic.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_arithmetic {
namespace {

// Op()(a, b) for a b that is not 0.
template <class Op, class T>
struct DivideIfDefined {
  constexpr T operator()(T a, T b) const { return b == T(0) ? T(0) : Op()(a, b); }
};

template <class T>
void note_zeros(const Call& call, gpu::In<T> divisors) {
  const gpu::Bounds bounds = gpu::bounds(call, "a divisor of integers");
  gpu::each(call, divisors.size, [=] __device__(size_t i) {
    if (divisors[i] == T(0)) bounds.report(0, gpu::kNoLimit);
  });
}

// c = Op()(a, b) over broadcast operands, where Op is a division of some kind.
template <class Op, class T>
void divide(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  if constexpr (std::is_integral_v<T>) {
    if (c.size > 0) note_zeros(call, b);
    gpu::binary<DivideIfDefined<Op, T>>(args, a, b, c, call);
  } else {
    gpu::binary<Op>(args, a, b, c, call);
  }
}

template <class T>
void add_forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::binary<std::plus<gpu::Accumulate<T>>>(args, a, b, c, call);
}

REGISTER(add_cuda) {
  return cuda<BroadcastArgs>("Add", add_forward<float>, add_forward<double>, add_forward<float16>,
                             add_forward<bfloat16>, add_forward<int32_t>, add_forward<int64_t>);
}

template <class T>
void sub_forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::binary<std::minus<gpu::Accumulate<T>>>(args, a, b, c, call);
}

REGISTER(sub_cuda) {
  return cuda<BroadcastArgs>("Sub", sub_forward<float>, sub_forward<double>, sub_forward<float16>,
                             sub_forward<bfloat16>, sub_forward<int32_t>, sub_forward<int64_t>);
}

template <class T>
void mul_forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::binary<std::multiplies<gpu::Accumulate<T>>>(args, a, b, c, call);
}

REGISTER(mul_cuda) {
  return cuda<BroadcastArgs>("Mul", mul_forward<float>, mul_forward<double>, mul_forward<float16>,
                             mul_forward<bfloat16>, mul_forward<int32_t>, mul_forward<int64_t>);
}

template <class T>
void div_forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  divide<Quotient<gpu::Accumulate<T>>>(args, a, b, c, call);
}

REGISTER(div_cuda) {
  return cuda<BroadcastArgs>("Div", div_forward<float>, div_forward<double>, div_forward<float16>,
                             div_forward<bfloat16>, div_forward<int32_t>, div_forward<int64_t>);
}

template <class T>
void fmod_forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  divide<Remainder<T>>(args, a, b, c, call);
}

template <class T>
void whole_quotient(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  divide<WholeQuotient<T>>(args, a, b, c, call);
}

REGISTER(fmod_cuda) {
  return cuda<BroadcastArgs>("FMod", fmod_forward<float>, fmod_forward<double>, fmod_forward<int32_t>,
                             fmod_forward<int64_t>);
}
REGISTER(trunc_div_cuda) { return cuda<BroadcastArgs>("TruncDiv", whole_quotient<float>, whole_quotient<double>); }

template <class T>
void scale_forward(const ScaleArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const auto factor = static_cast<gpu::Accumulate<T>>(a.scale);
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = factor * x[i]; });
}

REGISTER(scale_cuda) {
  return cuda<ScaleArgs>("Scale", scale_forward<float>, scale_forward<double>, scale_forward<float16>,
                         scale_forward<bfloat16>);
}

template <class T>
void pow_power(const Call& call, gpu::In<T> x, gpu::Accumulate<T> e, gpu::Out<T> y) {
  if (e == 1) return gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i]; });
  if (e == 2) return gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[i] * x[i]; });
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = Power<gpu::Accumulate<T>>()(x[i], e); });
}

template <class T>
void pow_forward(const PowArgs& a, gpu::In<T> x, gpu::In<T> exponent, gpu::Out<T> y, Call& call) {
  if (a.exponent) return pow_power(call, x, *a.exponent, y);
  gpu::binary<Power<gpu::Accumulate<T>>>(a, x, exponent, y, call);
}

REGISTER(pow_cuda) {
  return cuda<PowArgs>("Pow", pow_forward<float>, pow_forward<double>, pow_forward<float16>, pow_forward<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_arithmetic
