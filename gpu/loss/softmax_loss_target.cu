// CUDA kernel for the gradients of SoftmaxWithLoss and SpatialSoftmaxWithLoss with respect to targets and weights.
// Meaning, formulas and names: see operators/loss/softmax_loss_target.cc.
#include "gpu/loops/softmax_loss.h"

namespace stepnet::gpu_softmax_loss_target {
namespace {

// Calls fn(j, at) for the elements of a line that are this worker's thread's.
template <class Worker, class Fn>
__device__ void each_element(const OneAxis& lines, size_t n, const Worker& worker, Fn fn) {
  const size_t first = static_cast<size_t>(lines.first(static_cast<int64_t>(n)));
  for (size_t j = worker.thread; j < static_cast<size_t>(lines.size); j += Worker::size)
    fn(j, first + j * static_cast<size_t>(lines.inner));
}

// A line's log(sum(exp(x))) and, unless `losses` is null, its loss, for which alone distributions are read.
template <class T>
struct LossOfLine {
  OneAxis lines;
  gpu::DeviceTargets<T> targets;
  gpu::In<T> x;
  double *log_sums, *losses;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    double most = -INFINITY, sum = 0, loss = 0;
    each_element(lines, n, worker, [&](size_t, size_t at) { most = fmax(most, static_cast<double>(x[at])); });
    most = worker.reduce(most, [](double a, double b) { return fmax(a, b); });
    each_element(lines, n, worker, [&](size_t, size_t at) { sum += exp(static_cast<double>(x[at]) - most); });
    const double log_sum = most + log(worker.sum(sum));
    if (losses) {
      each_element(lines, n, worker, [&](size_t j, size_t at) {
        const double share = targets.share(n, j);
        if (share != 0) loss += share * (log_sum - static_cast<double>(x[at]));
      });
      loss = worker.sum(loss);
    }
    if (worker.thread > 0) return;
    targets.check(n);
    log_sums[n] = lines.size > 0 ? log_sum : 0;
    if (losses) losses[n] = loss;
  }
};

// What the kernels share: the loss's lines, its targets and what c is made of.
template <class T>
struct Context {
  OneAxis lines;
  gpu::DeviceTargets<T> targets;
  double scale;
  const T* dloss;

  Context(const Call& call, const LossArgs& a, const Tensor& target, gpu::In<T> weights, gpu::In<T> of_loss)
      : lines(loss_lines(a, call.in(0).shape())),
        targets(call, a, lines, target, weights),
        scale(static_cast<double>(a.scale)),
        dloss(of_loss.data) {}
  __device__ double factor(const gpu::WeightedSums& sums) const {
    return scale * static_cast<double>(dloss[0]) * sums.by_total();
  }
};

// The losses of lines, with their mean.
template <class T>
struct Losses {
  gpu::Temporary<double> log_sums, losses, sums;
  gpu::WeightedSums weighted;

  Losses(const Call& call, const Context<T>& context, gpu::In<T> x, bool wants_losses)
      : log_sums(call, context.targets.count), losses(call, context.targets.count), sums(call, 2) {
    double* const of_lines = wants_losses ? losses.data : nullptr;
    gpu::each_line(call, context.lines, LossOfLine<T>{context.lines, context.targets, x, log_sums.data, of_lines});
    weighted = gpu::weighted_sums(call, context.targets, of_lines, sums.data);
  }
};

template <class T>
struct TargetLine {
  Context<T> context;
  gpu::WeightedSums weighted;
  const double *log_sums, *losses;
  gpu::In<T> x;
  gpu::Out<T> dt, dw;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const double c = context.factor(weighted), factor = c * context.targets.weight(n);
    if (dw.data && worker.thread == 0)
      dw[n] = context.targets.ignored(n) ? T(0) : static_cast<T>(c * (losses[n] - weighted.mean()));
    if (!dt.data) return;
    each_element(context.lines, n, worker, [&](size_t, size_t at) {
      dt[at] = static_cast<T>(factor * (log_sums[n] - static_cast<double>(x[at])));
    });
  }
};

template <class T>
void target_gradient(const LossArgs& a, gpu::In<T> x, const Tensor& target, gpu::In<T> dloss, gpu::In<T> weights,
                     gpu::Out<T> dt, gpu::Out<T> dw, Call& call) {
  const Context<T> context(call, a, target, weights, dloss);
  Losses<T> of(call, context, x, dw.data != nullptr);
  gpu::each_line(call, context.lines, TargetLine<T>{context, of.weighted, of.log_sums.data, of.losses.data, x, dt, dw});
}

REGISTER(softmax_loss_target_gradient_cuda) {
  return cuda<LossArgs>("SoftmaxLossTargetGradient", target_gradient<float>, target_gradient<double>);
}
}  // namespace
}  // namespace stepnet::gpu_softmax_loss_target
