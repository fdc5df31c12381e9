// CUDA kernels for HuberLoss and SmoothL1Loss. Meaning and derivatives: see operators/loss/huber_loss.cc.
#include "operators/loss/huber_loss.h"

#include "gpu/loops/reduce.h"
#include "stepnet/half.h"

namespace stepnet::gpu_huber_loss {
namespace {

template <class T, bool kDivided>
void forward(const HuberArgs& a, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> loss, Call& call) {
  const auto bound = static_cast<double>(a.bound);
  const double count = (x.size == 0 ? 1 : static_cast<double>(x.size)) * (kDivided ? bound : 1);
  gpu::reduce(
      call, {1, static_cast<int64_t>(x.size), 1}, 0.0,
      [=] __device__(size_t, size_t i, size_t) {
        return huber(static_cast<double>(x[i]) - static_cast<double>(y[i]), bound);
      },
      std::plus<double>(), [=] __device__(size_t, size_t, double sum) { loss[0] = static_cast<T>(sum / count); });
}

REGISTER(huber_loss_cuda) {
  return cuda<HuberArgs>("HuberLoss", forward<float, false>, forward<double, false>, forward<float16, false>,
                         forward<bfloat16, false>);
}
REGISTER(smooth_l1_loss_cuda) {
  return cuda<HuberArgs>("SmoothL1Loss", forward<float, true>, forward<double, true>, forward<float16, true>,
                         forward<bfloat16, true>);
}

}  // namespace
}  // namespace stepnet::gpu_huber_loss
