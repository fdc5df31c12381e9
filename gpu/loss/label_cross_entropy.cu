// CUDA kernels for LabelCrossEntropy and its gradient. Meaning and derivatives: see
// operators/loss/label_cross_entropy.cc. A row whose label is no class gets zeros.
#include "gpu/loops/scalar.h"
#include "operators/loss/cross_entropy.h"

namespace stepnet::gpu_label_cross_entropy {
namespace {

template <class T>
void forward(gpu::In<T> x, const Tensor& labels, gpu::Out<T> y, Call& call) {
  const AxisRows rows = class_rows(call.in(0).shape());
  const gpu::Indices label(labels);
  const gpu::Bounds bounds = gpu::bounds(call, "a label");
  gpu::each(call, y.size, [=] __device__(size_t n) {
    const int64_t at = label[n];
    y[n] = bounds.inside(at, rows.size) ? -log(bounded(x[n * rows.size + at])) : T(0);
  });
}

template <class T>
void gradient(gpu::In<T> x, const Tensor& labels, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const AxisRows rows = class_rows(call.in(0).shape());
  const gpu::Indices label(labels);
  const gpu::Bounds bounds = gpu::bounds(call, "a label");
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const size_t n = i / rows.size;
    const int64_t at = label[n], j = static_cast<int64_t>(i % rows.size);
    if (j == 0) bounds.inside(at, rows.size);
    dx[i] = at == j ? -dy[n] / bounded(x[i]) : T(0);
  });
}

REGISTER(label_cross_entropy_cuda) { return cuda("LabelCrossEntropy", forward<float>, forward<double>); }
REGISTER(label_cross_entropy_gradient_cuda) {
  return cuda("LabelCrossEntropyGradient", gradient<float>, gradient<double>);
}
}  // namespace
}  // namespace stepnet::gpu_label_cross_entropy
