// CUDA kernels for Normalize and its gradient. Meaning and derivatives: see operators/norm/normalize.cc.
#include "operators/norm/normalize.h"

#include "gpu/loops/temporary.h"
#include "operators/loops/one_axis.h"

namespace stepnet::gpu_normalize {
namespace {

struct Lines {
  gpu::Divider size, inner;
  explicit Lines(const OneAxis& axis) : size(static_cast<size_t>(axis.size)), inner(static_cast<size_t>(axis.inner)) {}
  __device__ size_t line(size_t i) const {
    const auto [place, column] = inner.split(i);
    return size.divide(place) * inner.divisor() + column;
  }
};

// For each line, the sums of a b and of c d.
template <class T>
void dots(const Call& call, const OneAxis& axis, const T* a, const T* b, const T* c, const T* d, gpu::Pair* sums) {
  const size_t size = static_cast<size_t>(axis.size), inner = static_cast<size_t>(axis.inner);
  gpu::reduce_axis(
      call, {axis.outer, axis.size, axis.inner}, gpu::Pair(),
      [=] __device__(size_t o, size_t k, size_t i) {
        const size_t at = (o * size + k) * inner + i;
        return gpu::Pair{static_cast<double>(a[at]) * static_cast<double>(b[at]),
                         static_cast<double>(c[at]) * static_cast<double>(d[at])};
      },
      std::plus<gpu::Pair>(), [=] __device__(size_t o, size_t i, gpu::Pair sum) { sums[o * inner + i] = sum; });
}

template <class T>
void forward(const NormalizeArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  const gpu::Temporary<gpu::Pair> sums(call, axis.lines());
  dots(call, axis, x.data, x.data, x.data, x.data, sums.data);
  const Lines lines(axis);
  const gpu::Pair* of = sums.data;
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const double norm = std::sqrt(of[lines.line(i)].first);
    y[i] = static_cast<T>(static_cast<double>(x[i]) / (norm < kLeastNorm ? kLeastNorm : norm));
  });
}

template <class T>
void gradient(const NormalizeArgs& a, gpu::In<T> x, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  const gpu::Temporary<gpu::Pair> sums(call, axis.lines());
  dots(call, axis, x.data, x.data, x.data, dy.data, sums.data);
  const Lines lines(axis);
  const gpu::Pair* of = sums.data;
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const gpu::Pair sum = of[lines.line(i)];
    const double norm = std::sqrt(sum.first), along = norm > kLeastNorm ? sum.second / (norm * norm) : 0;
    dx[i] = static_cast<T>((static_cast<double>(dy[i]) - along * static_cast<double>(x[i])) /
                           (norm < kLeastNorm ? kLeastNorm : norm));
  });
}

REGISTER(normalize_cuda) { return cuda<NormalizeArgs>("Normalize", forward<float>, forward<double>); }
REGISTER(normalize_gradient_cuda) {
  return cuda<NormalizeArgs>("NormalizeGradient", gradient<float>, gradient<double>);
}
}  // namespace
}  // namespace stepnet::gpu_normalize
