// CUDA kernels for CrossEntropy and its gradient. Meaning and derivatives: see operators/loss/cross_entropy.cc.
#include "operators/loss/cross_entropy.h"

#include "gpu/loops/reduce.h"

namespace stepnet::gpu_cross_entropy {
namespace {

template <class T>
void forward(gpu::In<T> x, gpu::In<T> label, gpu::Out<T> y, Call& call) {
  const AxisRows rows = class_rows(call.in(0).shape());
  const auto size = static_cast<size_t>(rows.size);
  gpu::reduce(
      call, {rows.count, rows.size, 1}, 0.0,
      [=] __device__(size_t n, size_t j, size_t) {
        const size_t i = n * size + j;
        return -static_cast<double>(label[i]) * log(static_cast<double>(bounded(x[i])));
      },
      std::plus<double>(), [=] __device__(size_t n, size_t, double sum) { y[n] = static_cast<T>(sum); });
}

template <class T>
void gradient(gpu::In<T> x, gpu::In<T> label, gpu::In<T> dy, gpu::Out<T> dx, gpu::Out<T> dlabel, Call& call) {
  const auto size = static_cast<size_t>(class_rows(call.in(0).shape()).size);
  gpu::each(call, x.size, [=] __device__(size_t i) {
    const T p = bounded(x[i]), up = dy[i / size];
    if (dx.data) dx[i] = -up * label[i] / p;
    if (dlabel.data) dlabel[i] = -up * log(p);
  });
}

REGISTER(cross_entropy_cuda) { return cuda("CrossEntropy", forward<float>, forward<double>); }
REGISTER(cross_entropy_gradient_cuda) { return cuda("CrossEntropyGradient", gradient<float>, gradient<double>); }
}  // namespace
}  // namespace stepnet::gpu_cross_entropy
