// CUDA kernels for the operators of operators/pointwise/arithmetic.cc, where their meaning and derivatives stand.
#include "operators/pointwise/arithmetic.h"

#include "gpu/loops/elementwise.h"
#include "gpu/loops/reduce.h"
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

// d = the sum of Term()(place) over all places where an element of d, which has that shape, stands.
template <class Term, class T>
void sum_terms(Call& call, const Broadcast& shapes, const Shape& shape, const ArithmeticPlace<T>& from, gpu::Out<T> d) {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, T>;
  const gpu::BroadcastIndex index(shapes);
  gpu::reduce_dims(
      call, gpu::ReducedDims(shapes.out, shape), Wide(0),
      [=] __device__(size_t i) {
        size_t a = 0, b = 0;
        index.find(i, a, b);
        ArithmeticPlace<T> p = from;
        p.at = static_cast<int64_t>(i);
        p.at_a = static_cast<int64_t>(a);
        p.at_b = static_cast<int64_t>(b);
        return static_cast<Wide>(Term()(p));
      },
      std::plus<Wide>(), [=] __device__(size_t j, Wide sum) { d[j] = static_cast<T>(sum); });
}

template <class Term, class T>
void write_terms(Call& call, const ArithmeticPlace<T>& from, gpu::Out<T> d) {
  gpu::each(call, d.size, [=] __device__(size_t i) {
    ArithmeticPlace<T> p = from;
    p.at = p.at_a = p.at_b = static_cast<int64_t>(i);
    d[i] = Term()(p);
  });
}

template <class Terms, class T>
struct TermOfA {
  constexpr T operator()(const ArithmeticPlace<T>& p) const { return Terms::a(p); }
};
template <class Terms, class T>
struct TermOfB {
  constexpr T operator()(const ArithmeticPlace<T>& p) const { return Terms::b(p); }
};

// The output that is written over an input comes last.
template <class Terms, class T>
void gradients(const BroadcastArgs& args, gpu::Out<T> da, gpu::Out<T> db, Call& call) {
  const ArithmeticInputs in = arithmetic_inputs(std::is_same_v<Terms, DivTerms>, call.inputs());
  const Broadcast shapes = broadcast_shapes(args, call.in(in.a).shape(), call.in(in.b).shape());
  const auto data = [&](int i) { return call.has(i) ? gpu::in_span<T>(call.in(i)).data : nullptr; };
  const ArithmeticPlace<T> from{data(in.dc), data(in.a), data(in.b), data(in.c)};
  const auto write_a = [&] {
    if (!call.wants(0)) return;
    if (shapes.plain()) return write_terms<TermOfA<Terms, T>>(call, from, da);
    sum_terms<TermOfA<Terms, T>>(call, shapes, shapes.a, from, da);
  };
  const auto write_b = [&] {
    if (!call.wants(1)) return;
    if (shapes.plain()) return write_terms<TermOfB<Terms, T>>(call, from, db);
    sum_terms<TermOfB<Terms, T>>(call, shapes, shapes.b, from, db);
  };
  const bool b_last = call.wants(1) && db.data == from.dc;
  b_last ? write_a() : write_b();
  b_last ? write_b() : write_a();
}

REGISTER(add_gradient_cuda) {
  return cuda<BroadcastArgs>("AddGradient", gradients<AddTerms, float>, gradients<AddTerms, double>,
                             gradients<AddTerms, int32_t>, gradients<AddTerms, int64_t>);
}
REGISTER(sub_gradient_cuda) {
  return cuda<BroadcastArgs>("SubGradient", gradients<SubTerms, float>, gradients<SubTerms, double>,
                             gradients<SubTerms, int32_t>, gradients<SubTerms, int64_t>);
}
REGISTER(mul_gradient_cuda) {
  return cuda<BroadcastArgs>("MulGradient", gradients<MulTerms, float>, gradients<MulTerms, double>,
                             gradients<MulTerms, int32_t>, gradients<MulTerms, int64_t>);
}
REGISTER(div_gradient_cuda) {
  return cuda<BroadcastArgs>("DivGradient", gradients<DivTerms, float>, gradients<DivTerms, double>);
}

}  // namespace
}  // namespace stepnet::gpu_arithmetic
