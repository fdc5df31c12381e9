// CUDA kernels for NLLLoss, CrossEntropyLoss and their gradients. Meaning and derivatives: see
// operators/loss/nll_loss.cc. A place whose label is no class counts like one that is ignored.
#include "operators/loss/nll_loss.h"

#include "gpu/loops/lines.h"
#include "gpu/loops/log_sums.h"
#include "gpu/loops/reduce.h"

namespace stepnet::gpu_nll_loss {
namespace {

template <class T>
NllTargets<T> targets_of(const NllArgs& a, const Call& call, gpu::In<T> weights) {
  return {a, class_lines(call.in(0).shape()), gpu::device_wholes(call.in(1)), weights.data};
}

// Notes a label that is no class.
template <class T>
__device__ void check_label(const NllTargets<T>& targets, const gpu::Bounds& bounds, int64_t n) {
  if (targets.labels[n] != targets.ignored) bounds.inside(targets.labels[n], targets.lines.size);
}

// The greatest score of a line, and the sum of exponentials with it taken off.
template <class T, class Worker>
__device__ gpu::Pair exponentials(const OneAxis& lines, const T* x, const Worker& worker) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t j = worker.thread; j < lines.size; j += Worker::size)
    if (const auto score = static_cast<double>(x[j * lines.inner]); score > most) most = score;
  most = worker.reduce(most, [](double a, double b) { return a > b ? a : b; });
  for (int64_t j = worker.thread; j < lines.size; j += Worker::size)
    sum += exp(static_cast<double>(x[j * lines.inner]) - most);
  return {most, worker.sum(sum)};
}

template <class T, bool kSoftmax>
struct LossLine {
  NllTargets<T> targets;
  gpu::Bounds bounds;
  gpu::In<T> x;
  T* each;         // of the reduction none
  double* losses;  // of the others

  template <class Worker>
  __device__ void operator()(size_t at, const Worker& worker) const {
    const auto n = static_cast<int64_t>(at);
    check_label(targets, bounds, n);
    const double loss = targets.counts(n) ? loss_of(n, worker) : 0;
    if (worker.thread > 0) return;
    if (each)
      each[n] = static_cast<T>(loss);
    else
      losses[n] = loss;
  }

  template <class Worker>
  __device__ double loss_of(int64_t n, const Worker& worker) const {
    const OneAxis& lines = targets.lines;
    const T* const scores = x.data + lines.first(n);
    double log_sum = 0;
    if constexpr (kSoftmax) {
      const gpu::Pair line = exponentials(lines, scores, worker);
      log_sum = line.first + log(line.second);
    }
    const int64_t label = targets.labels[n];
    const double loss = targets.weight(label) * (log_sum - static_cast<double>(scores[label * lines.inner]));
    if (targets.spread == 0) return loss;
    double sum = 0;
    for (int64_t c = worker.thread; c < lines.size; c += Worker::size)
      sum += targets.weight(c) * (log_sum - static_cast<double>(scores[c * lines.inner]));
    return targets.share * loss + targets.spread * worker.sum(sum);
  }
};

// sums[0] is the sum of counts; sums[1], if there are losses, theirs.
template <class T>
void add_up(const Call& call, const NllTargets<T>& targets, const double* losses, double* sums) {
  gpu::reduce(
      call, {losses ? 2 : 1, targets.lines.lines(), 1}, 0.0,
      [=] __device__(size_t which, size_t n, size_t) {
        return which == 0 ? targets.count(static_cast<int64_t>(n)) : losses[n];
      },
      std::plus<double>(), [=] __device__(size_t which, size_t, double sum) { sums[which] = sum; });
}

template <class T, bool kSoftmax>
void forward(const NllArgs& a, gpu::In<T> x, const Tensor&, gpu::In<T> weights, gpu::Out<T> loss, Call& call) {
  const NllTargets<T> targets = targets_of(a, call, weights);
  const gpu::Bounds bounds = gpu::bounds(call, "a label");
  const LossReduction reduction = loss_reduction(a.reduction);
  if (reduction == LossReduction::none)
    return gpu::each_line(call, targets.lines, LossLine<T, kSoftmax>{targets, bounds, x, loss.data, nullptr});
  const gpu::Temporary<double> losses(call, targets.lines.lines()), both(call, 2);
  double* const sums = both.data;
  gpu::each_line(call, targets.lines, LossLine<T, kSoftmax>{targets, bounds, x, nullptr, losses.data});
  add_up(call, targets, losses.data, sums);
  const bool mean = reduction == LossReduction::mean;
  gpu::each(call, 1, [=] __device__(size_t) {
    const double total = mean ? sums[0] : 1;
    loss[0] = static_cast<T>(total != 0 ? sums[1] / total : 0);
  });
}

template <class T, bool kSoftmax>
struct GradientLine {
  NllTargets<T> targets;
  gpu::Bounds bounds;
  gpu::In<T> x, dloss;
  gpu::Out<T> dx;
  const double* sum;  // of counts, for the mean
  bool single;        // one dloss for all

  template <class Worker>
  __device__ void operator()(size_t at, const Worker& worker) const {
    const auto n = static_cast<int64_t>(at);
    const OneAxis& lines = targets.lines;
    check_label(targets, bounds, n);
    const double by_sum = sum ? (*sum != 0 ? 1 / *sum : 0) : 1;
    const double factor = targets.counts(n) ? by_sum * static_cast<double>(dloss[single ? 0 : at]) : 0;
    const int64_t label = targets.counts(n) ? targets.labels[n] : 0, first = lines.first(n);
    const double of_label = factor * targets.share * targets.weight(label), of_all = factor * targets.spread;
    double most = 0, scale = 0;
    if constexpr (kSoftmax) {
      double total = 0;
      for (int64_t c = worker.thread; c < lines.size; c += Worker::size) total += targets.weight(c);
      total = worker.sum(total);
      const gpu::Pair line = exponentials(lines, x.data + first, worker);
      most = line.first;
      scale = (of_label + of_all * total) / line.second;
    }
    for (int64_t c = worker.thread; c < lines.size; c += Worker::size) {
      double slope = -of_all * targets.weight(c) - (c == label ? of_label : 0);
      if constexpr (kSoftmax) slope += scale * exp(static_cast<double>(x[first + c * lines.inner]) - most);
      dx[first + c * lines.inner] = targets.counts(n) ? static_cast<T>(slope) : T(0);
    }
  }
};

template <class T, bool kSoftmax>
void gradients(const NllArgs& a, gpu::In<T> x, gpu::In<T> dloss, gpu::In<T> weights, gpu::Out<T> dx, Call& call) {
  const NllTargets<T> targets = targets_of(a, call, weights);
  const LossReduction reduction = loss_reduction(a.reduction);
  const gpu::Temporary<double> sums(call, 2);
  const bool mean = reduction == LossReduction::mean;
  if (mean) add_up(call, targets, nullptr, sums.data);
  gpu::each_line(call, targets.lines,
                 GradientLine<T, kSoftmax>{targets, gpu::bounds(call, "a label"), x, dloss, dx,
                                           mean ? sums.data : nullptr, reduction != LossReduction::none});
}

template <class T>
void nll_gradient(const NllArgs& a, const Tensor&, const Tensor&, gpu::In<T> dloss, gpu::In<T> weights, gpu::Out<T> dx,
                  Call& call) {
  gradients<T, false>(a, {}, dloss, weights, dx, call);
}

template <class T>
void cross_entropy_gradient(const NllArgs& a, gpu::In<T> x, const Tensor&, gpu::In<T> dloss, gpu::In<T> weights,
                            gpu::Out<T> dx, Call& call) {
  gradients<T, true>(a, x, dloss, weights, dx, call);
}

REGISTER(nll_loss_cuda) { return cuda<NllArgs>("NLLLoss", forward<float, false>, forward<double, false>); }
REGISTER(nll_loss_gradient_cuda) { return cuda<NllArgs>("NLLLossGradient", nll_gradient<float>, nll_gradient<double>); }
REGISTER(cross_entropy_loss_cuda) {
  return cuda<NllArgs>("CrossEntropyLoss", forward<float, true>, forward<double, true>);
}
REGISTER(cross_entropy_loss_gradient_cuda) {
  return cuda<NllArgs>("CrossEntropyLossGradient", cross_entropy_gradient<float>, cross_entropy_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_nll_loss
