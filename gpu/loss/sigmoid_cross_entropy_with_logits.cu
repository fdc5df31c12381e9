// CUDA kernels for SigmoidCrossEntropyWithLogits and its gradient. Meaning and derivatives: see
// operators/loss/sigmoid_cross_entropy_with_logits.cc.
#include "operators/loss/sigmoid_cross_entropy_with_logits.h"

#include "gpu/loops/reduce.h"

namespace stepnet::gpu_sigmoid_cross_entropy_with_logits {
namespace {

template <class T>
void forward(const LogitArgs& a, gpu::In<T> logits, gpu::In<T> targets, gpu::Out<T> y, Call& call) {
  const LogitLoss kind = logit_kind(a);
  const AxisRows rows = logit_rows(call.in(0).shape());
  const auto size = static_cast<size_t>(rows.size);
  gpu::reduce(
      call, {rows.count, rows.size, 1}, 0.0,
      [=] __device__(size_t n, size_t j, size_t) {
        const size_t i = n * size + j;
        return logit_loss(kind, static_cast<double>(logits[i]), static_cast<double>(targets[i]));
      },
      std::plus<double>(),
      [=] __device__(size_t n, size_t, double sum) {
        y[n] = size > 0 ? static_cast<T>(sum / static_cast<double>(size)) : T(0);
      });
}

template <class T>
void gradient(const LogitArgs& a, gpu::In<T> dy, gpu::In<T> logits, gpu::In<T> targets, gpu::Out<T> dlogits,
              gpu::Out<T> dtargets, Call& call) {
  const LogitLoss kind = logit_kind(a);
  const auto size = static_cast<size_t>(logit_rows(call.in(1).shape()).size);
  gpu::each(call, logits.size, [=] __device__(size_t i) {
    const double share = static_cast<double>(dy[i / size]) / static_cast<double>(size);
    const double x = static_cast<double>(logits[i]);
    if (dlogits.data) dlogits[i] = static_cast<T>(share * logit_slope(kind, x, static_cast<double>(targets[i])));
    if (dtargets.data) dtargets[i] = static_cast<T>(share * target_slope(kind, x));
  });
}

REGISTER(sigmoid_cross_entropy_with_logits_cuda) {
  return cuda<LogitArgs>("SigmoidCrossEntropyWithLogits", forward<float>, forward<double>);
}
REGISTER(sigmoid_cross_entropy_with_logits_gradient_cuda) {
  return cuda<LogitArgs>("SigmoidCrossEntropyWithLogitsGradient", gradient<float>, gradient<double>);
}
}  // namespace
}  // namespace stepnet::gpu_sigmoid_cross_entropy_with_logits
