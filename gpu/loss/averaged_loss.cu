// CUDA kernels for AveragedLoss and its gradient. Meaning and derivatives: see operators/loss/averaged_loss.cc.
#include "gpu/loops/reduce.h"
#include "gpu/runtime/accumulate.h"

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
  const auto count = static_cast<gpu::Accumulate<T>>(dx.size);
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[0] / count; });
}

REGISTER(averaged_loss_cuda) {
  return cuda("AveragedLoss", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(averaged_loss_gradient_cuda) {
  return cuda("AveragedLossGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_averaged_loss
