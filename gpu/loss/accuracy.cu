// CUDA kernel for Accuracy. Meaning: see operators/loss/accuracy.cc. A row whose label is no class counts as wrong.
#include "operators/loss/accuracy.h"

#include "gpu/loops/reduce.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_accuracy {
namespace {

template <class T>
void forward(const AccuracyArgs& a, gpu::In<T> x, const Tensor& labels, gpu::Out<float> y, Call& call) {
  const int64_t rows = call.in(0).dim(0), classes = call.in(0).dim(1), k = a.top_k;
  const double count = rows == 0 ? 1 : static_cast<double>(rows);
  const gpu::Indices label(labels);
  const gpu::Bounds bounds = gpu::bounds(call, "a label");
  gpu::reduce(
      call, {1, rows, 1}, 0.0,
      [=] __device__(size_t, size_t n, size_t) {
        const int64_t at = label[n];
        return bounds.inside(at, classes) && is_among_best(&x[n * classes], classes, at, k) ? 1.0 : 0.0;
      },
      std::plus<double>(), [=] __device__(size_t, size_t, double sum) { y[0] = static_cast<float>(sum / count); });
}

REGISTER(accuracy_cuda) { return cuda<AccuracyArgs>("Accuracy", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_accuracy
