// CUDA kernels for SoftmaxWithLoss, SpatialSoftmaxWithLoss and their gradients. Meaning and derivatives: see
// operators/loss/softmax_with_loss.cc.
#include "gpu/loops/softmax_loss.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_softmax_with_loss {
namespace {

// What a message can say of a number that is not in range.
__host__ __device__ inline int64_t in_millionths(double value) {
  return fabs(value) < 1e12 ? static_cast<int64_t>(value * 1e6) : INT64_MAX;
}

// How far from 1 a distribution's sum may be: shares of a half type are rounded.
template <class T>
constexpr double sum_error() {
  return kSumError + (std::is_same_v<T, bfloat16> ? 0x1p-8 : std::is_same_v<T, float16> ? 0x1p-11 : 0);
}

// One line's probabilities and loss.
template <class T>
struct ForwardLine {
  OneAxis lines;
  gpu::DeviceTargets<T> targets;
  gpu::Bounds probability, miss;
  gpu::In<T> x;
  gpu::Out<T> p;
  double* losses;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const size_t first = static_cast<size_t>(lines.first(static_cast<int64_t>(n))),
                 size = static_cast<size_t>(lines.size), inner = static_cast<size_t>(lines.inner);
    using Wide = gpu::Accumulate<T>;
    Wide most = x[first];
    for (size_t j = worker.thread; j < size; j += Worker::size)
      most = x[first + j * inner] > most ? Wide(x[first + j * inner]) : most;
    most = worker.reduce(most, [](Wide a, Wide b) { return a > b ? a : b; });
    double sum = 0;
    for (size_t j = worker.thread; j < size; j += Worker::size)
      sum += static_cast<double>(exp(x[first + j * inner] - most));
    sum = worker.sum(sum);
    const auto scale = static_cast<Wide>(1 / sum);
    for (size_t j = worker.thread; p.data && j < size; j += Worker::size)
      p[first + j * inner] = scale * exp(x[first + j * inner] - most);
    const double log_sum = static_cast<double>(most) + log(sum);
    const double loss = targets.distributions ? of_distribution(n, worker, log_sum) : of_label(n, first, log_sum);
    if (worker.thread == 0) losses[n] = loss;
  }

  __device__ double of_label(size_t n, size_t first, double log_sum) const {
    targets.check(n);
    if (targets.ignored(n)) return 0;
    return log_sum - static_cast<double>(x[first + static_cast<size_t>(targets.label(n) * lines.inner)]);
  }

  // Such lines are dense: there is no spatial loss of distributions.
  template <class Worker>
  __device__ double of_distribution(size_t n, const Worker& worker, double log_sum) const {
    const size_t size = static_cast<size_t>(lines.size);
    double loss = 0, all = 0;
    for (size_t j = worker.thread; j < size; j += Worker::size) {
      const double share = targets.share(n, j);
      if (!(share >= 0)) probability.report(in_millionths(share), 1000001);
      if (share > 0) loss += share * (log_sum - static_cast<double>(x[n * size + j]));
      all += share;
    }
    all = worker.sum(all);
    if (!(fabs(all - 1) < sum_error<T>())) miss.report(in_millionths(fabs(all - 1)), in_millionths(sum_error<T>()));
    return worker.sum(loss);
  }
};

template <class Args, class T>
void forward(const Args& a, gpu::In<T> x, const Tensor& target, gpu::In<T> weights, gpu::Out<T> p, gpu::Out<T> loss,
             Call& call) {
  const OneAxis lines = loss_lines(a, call.in(0).shape());
  require(lines.size > 0 || lines.lines() == 0, "X {} has no classes", call.in(0).shape());
  const gpu::DeviceTargets<T> targets(call, a, lines, target, weights);
  const gpu::Bounds probability = gpu::bounds(call, "a probability of T, in millionths,"),
                    miss = gpu::bounds(call, "the distance of the sum of a row of T from 1, in millionths,");
  gpu::Temporary<double> losses(call, lines.lines()), sums(call, 2);
  gpu::each_line(call, lines, ForwardLine<T>{lines, targets, probability, miss, x, p, losses.data});
  const gpu::WeightedSums weighted = gpu::weighted_sums(call, targets, losses.data, sums.data);
  const double scale = static_cast<double>(a.scale);
  gpu::each(call, loss.size, [=] __device__(size_t i) { loss[i] = static_cast<T>(scale * weighted.mean()); });
}

// dX of one line.
template <class T>
struct GradientLine {
  OneAxis lines;
  gpu::DeviceTargets<T> targets;
  gpu::WeightedSums weighted;
  double scale;
  gpu::In<T> p, dloss;
  gpu::Out<T> dx;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const size_t first = static_cast<size_t>(lines.first(static_cast<int64_t>(n)));
    const double factor = scale * static_cast<double>(dloss[0]) * weighted.by_total() * targets.weight(n);
    using Wide = gpu::Accumulate<T>;
    const auto f = static_cast<Wide>(factor), of_p = static_cast<Wide>(factor * targets.shares_sum(n, worker));
    const bool ignored = targets.ignored(n);
    targets.check(n);
    for (size_t j = worker.thread; j < static_cast<size_t>(lines.size); j += Worker::size) {
      const size_t at = first + j * static_cast<size_t>(lines.inner);
      const Wide share = ignored ? Wide(0) : static_cast<Wide>(targets.share(n, j));
      dx[at] = of_p * p[at] - share * f;
    }
  }
};

template <class Args, class T>
void gradient(const Args& a, Call& call) {
  const GradientInputs in = gradient_inputs(call.inputs());
  const OneAxis lines = loss_lines(a, call.in(0).shape());
  const gpu::In<T> p = gpu::in_span<T>(call.in(in.p)), dloss = gpu::in_span<T>(call.in(in.dloss)),
                   weights =
                       in.weights < 0 || !call.has(in.weights) ? gpu::In<T>{} : gpu::in_span<T>(call.in(in.weights));
  const gpu::DeviceTargets<T> targets(call, a, lines, call.in(1), weights);
  gpu::Temporary<double> sums(call, 1);
  const gpu::WeightedSums weighted = gpu::weighted_sums(call, targets, nullptr, sums.data);
  gpu::each_line(
      call, lines,
      GradientLine<T>{lines, targets, weighted, static_cast<double>(a.scale), p, dloss, gpu::out_span<T>(call.out(0))});
}

// The gradients take no In<T> by which their type would be known.
template <class Args>
void any_gradient(const Args& a, Call& call) {
  if (with_half(call.out(0).dtype(), [&](auto zero) { gradient<Args, decltype(zero)>(a, call); })) return;
  if (call.out(0).dtype() == DType::float64) return gradient<Args, double>(a, call);
  gradient<Args, float>(a, call);
}

REGISTER(softmax_with_loss_cuda) {
  return cuda<LossArgs>("SoftmaxWithLoss", forward<LossArgs, float>, forward<LossArgs, double>,
                        forward<LossArgs, float16>, forward<LossArgs, bfloat16>);
}
REGISTER(spatial_softmax_with_loss_cuda) {
  return cuda<SpatialLossArgs>("SpatialSoftmaxWithLoss", forward<SpatialLossArgs, float>,
                               forward<SpatialLossArgs, double>, forward<SpatialLossArgs, float16>,
                               forward<SpatialLossArgs, bfloat16>);
}
REGISTER(softmax_with_loss_gradient_cuda) { return cuda<LossArgs>("SoftmaxWithLossGradient", any_gradient<LossArgs>); }
REGISTER(spatial_softmax_with_loss_gradient_cuda) {
  return cuda<SpatialLossArgs>("SpatialSoftmaxWithLossGradient", any_gradient<SpatialLossArgs>);
}

}  // namespace
}  // namespace stepnet::gpu_softmax_with_loss
