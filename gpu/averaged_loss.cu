// CUDA kernels for AveragedLoss and its gradient. Meaning and derivatives: see operators/averaged_loss.cc.
#include "gpu/reduce.h"

namespace stepnet::gpu_averaged_loss {
namespace {

template <class T>
void forward(gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const double count = x.size == 0 ? 1 : static_cast<double>(x.size);
  gpu::reduce(
      call, {1, static_cast<int64_t>(x.size), 1}, 0.0,
      [=] __device__(size_t, size_t i, size_t) { return static_cast<double>(x[i]); }, std::plus<double>(),
      [=] __device__(size_t, size_t, double sum) { y[0] = static_cast<T>(sum / count); });
}

template <class T>
void gradient(const Tensor&, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const T count = static_cast<T>(dx.size);
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[0] / count; });
}

REGISTER(averaged_loss_cuda) { return cuda("AveragedLoss", forward<float>, forward<double>); }
REGISTER(averaged_loss_gradient_cuda) { return cuda("AveragedLossGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_averaged_loss
