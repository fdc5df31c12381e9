// CUDA kernels for SumElements, SumSqrElements, LpNorm and their gradients. Meaning and derivatives: see
// operators/reduce/sum_elements.cc.
#include "operators/reduce/sum_elements.h"

#include "gpu/loops/reduce.h"
#include "stepnet/half.h"

namespace stepnet::gpu_sum_elements {
namespace {

template <class T>
void forward(const SumArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const double divisor = sum_divisor(a, x.size);
  gpu::reduce(
      call, {1, static_cast<int64_t>(x.size), 1}, 0.0,
      [=] __device__(size_t, size_t i, size_t) { return static_cast<double>(x[i]); }, std::plus<double>(),
      [=] __device__(size_t, size_t, double sum) { y[0] = static_cast<T>(sum / divisor); });
}

template <class T>
void squares(const SumArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const double divisor = sum_divisor(a, x.size);
  gpu::reduce(
      call, {1, static_cast<int64_t>(x.size), 1}, 0.0,
      [=] __device__(size_t, size_t i, size_t) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); },
      std::plus<double>(), [=] __device__(size_t, size_t, double sum) { y[0] = static_cast<T>(sum / divisor); });
}

template <class T>
void gradient(const SumArgs& a, const Tensor&, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const double divisor = sum_divisor(a, dx.size);
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = static_cast<T>(static_cast<double>(dy[0]) / divisor); });
}

REGISTER(sum_elements_cuda) {
  return cuda<SumArgs>("SumElements", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(sum_elements_gradient_cuda) {
  return cuda<SumArgs>("SumElementsGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}
REGISTER(sum_sqr_elements_cuda) {
  return cuda<SumArgs>("SumSqrElements", squares<float>, squares<double>, squares<float16>, squares<bfloat16>);
}

template <class T>
void lp_norm(const LpNormArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const double divisor = sum_divisor(a, x.size);
  const int64_t p = a.p;
  gpu::reduce(
      call, {1, static_cast<int64_t>(x.size), 1}, 0.0,
      [=] __device__(size_t, size_t i, size_t) { return lp_term(p, static_cast<double>(x[i])); }, std::plus<double>(),
      [=] __device__(size_t, size_t, double sum) { y[0] = static_cast<T>(sum / divisor); });
}

template <class T>
void lp_norm_gradient(const LpNormArgs& a, gpu::In<T> x, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const double divisor = sum_divisor(a, x.size);
  const int64_t p = a.p;
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    dx[i] = lp_slope(p, x[i]) * static_cast<T>(static_cast<double>(dy[0]) / divisor);
  });
}

REGISTER(lp_norm_cuda) { return cuda<LpNormArgs>("LpNorm", lp_norm<float>, lp_norm<double>); }
REGISTER(lp_norm_gradient_cuda) {
  return cuda<LpNormArgs>("LpNormGradient", lp_norm_gradient<float>, lp_norm_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_sum_elements
