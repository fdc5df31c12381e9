// CUDA kernels for the operators of operators/pointwise/unary.cc, where their meaning and derivatives stand.
#include "operators/pointwise/unary.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_unary {
namespace {

template <class Fn, class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, gpu::Widened<T, Fn>());
}

// Integers as they are.
template <class Fn, class T>
void forward_integer(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::map(call, x, y, Fn());
}

template <class Fn>
Registration floats(const char* type) {
  return cuda(type, forward<Fn, float>, forward<Fn, double>, forward<Fn, float16>, forward<Fn, bfloat16>);
}

REGISTER(abs_cuda) { return floats<AbsoluteValue>("Abs"); }
REGISTER(acos_cuda) { return floats<InverseCosine>("Acos"); }
REGISTER(asin_cuda) { return floats<InverseSine>("Asin"); }
REGISTER(atan_cuda) { return floats<InverseTangent>("Atan"); }
REGISTER(cbrt_cuda) { return floats<CubeRoot>("Cbrt"); }
REGISTER(ceil_cuda) { return floats<RoundedUp>("Ceil"); }
REGISTER(cos_cuda) { return floats<Cosine>("Cos"); }
REGISTER(cosh_cuda) { return floats<HyperbolicCosine>("Cosh"); }
REGISTER(cube_cuda) { return floats<Cubed>("Cube"); }
REGISTER(erf_cuda) { return floats<ErrorFunction>("Erf"); }
REGISTER(exp_cuda) { return floats<Exponential>("Exp"); }
REGISTER(expm1_cuda) { return floats<ExponentialMinusOne>("Expm1"); }
REGISTER(floor_cuda) { return floats<RoundedDown>("Floor"); }
REGISTER(log_cuda) { return floats<Logarithm>("Log"); }
REGISTER(log1p_cuda) { return floats<LogarithmOfOnePlus>("Log1p"); }
REGISTER(reciprocal_cuda) { return floats<Inverse>("Reciprocal"); }
REGISTER(round_cuda) { return floats<RoundedToEven>("Round"); }
REGISTER(rsqrt_cuda) { return floats<InverseSquareRoot>("Rsqrt"); }
REGISTER(sin_cuda) { return floats<Sine>("Sin"); }
REGISTER(sinh_cuda) { return floats<HyperbolicSine>("Sinh"); }
REGISTER(sqr_cuda) { return floats<Square>("Sqr"); }
REGISTER(sqrt_cuda) { return floats<SquareRoot>("Sqrt"); }
REGISTER(tan_cuda) { return floats<Tangent>("Tan"); }

REGISTER(negative_cuda) {
  return cuda("Negative", forward<Negation, float>, forward<Negation, double>, forward<Negation, float16>,
              forward<Negation, bfloat16>, forward_integer<Negation, int32_t>, forward_integer<Negation, int64_t>);
}
REGISTER(sign_cuda) {
  return cuda("Sign", forward<SignOf, float>, forward<SignOf, double>, forward_integer<SignOf, int32_t>,
              forward_integer<SignOf, int64_t>);
}

template <class T>
void abs_gradient(Call& call, gpu::In<T> x, gpu::In<T> dy, gpu::Out<T> dx) {
  gpu::map(call, x, dy, dx, AbsSlope<gpu::Accumulate<T>>());
}
REGISTER(abs_gradient_cuda) {
  return cuda("AbsGradient", abs_gradient<float>, abs_gradient<double>, abs_gradient<float16>, abs_gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_unary
