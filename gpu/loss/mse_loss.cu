// CUDA kernel for MSELoss. Meaning and derivatives: see operators/loss/mse_loss.cc.
#include "gpu/loops/reduce.h"
#include "stepnet/half.h"

namespace stepnet::gpu_mse_loss {
namespace {

template <class T>
void forward(gpu::In<T> x, gpu::In<T> y, gpu::Out<T> loss, Call& call) {
  const double count = x.size == 0 ? 1 : static_cast<double>(x.size);
  gpu::reduce(
      call, {1, static_cast<int64_t>(x.size), 1}, 0.0,
      [=] __device__(size_t, size_t i, size_t) {
        const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
        return difference * difference;
      },
      std::plus<double>(), [=] __device__(size_t, size_t, double sum) { loss[0] = static_cast<T>(sum / count); });
}

REGISTER(mse_loss_cuda) {
  return cuda("MSELoss", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_mse_loss
