// CUDA kernels for the operators of operators/pointwise/arithmetic.cc, where their meaning and derivatives stand.
#include "operators/pointwise/arithmetic.h"

#include "gpu/loops/division.h"
#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_arithmetic {
namespace {

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
  gpu::divide<Quotient<gpu::Accumulate<T>>>(args, a, b, c, call);
}

REGISTER(div_cuda) {
  return cuda<BroadcastArgs>("Div", div_forward<float>, div_forward<double>, div_forward<float16>,
                             div_forward<bfloat16>, div_forward<int32_t>, div_forward<int64_t>);
}

template <class T>
void fmod_forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::divide<Remainder<T>>(args, a, b, c, call);
}

template <class T>
void whole_quotient(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::divide<WholeQuotient<T>>(args, a, b, c, call);
}

REGISTER(fmod_cuda) {
  return cuda<BroadcastArgs>("FMod", fmod_forward<float>, fmod_forward<double>, fmod_forward<int32_t>,
                             fmod_forward<int64_t>);
}
REGISTER(trunc_div_cuda) { return cuda<BroadcastArgs>("TruncDiv", whole_quotient<float>, whole_quotient<double>); }

}  // namespace
}  // namespace stepnet::gpu_arithmetic
