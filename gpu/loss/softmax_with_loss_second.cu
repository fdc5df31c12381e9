// CUDA kernels for the gradients of SoftmaxWithLoss and SpatialSoftmaxWithLoss beyond that of X. Meaning, formulas and
// names: see operators/loss/softmax_with_loss_second.cc.
#include "gpu/loops/softmax_loss.h"

namespace stepnet::gpu_softmax_with_loss_second {
namespace {

// Calls fn(j, at) for the elements of a line that are this worker's thread's.
template <class Worker, class Fn>
__device__ void each_element(const OneAxis& lines, size_t n, const Worker& worker, Fn fn) {
  const size_t first = static_cast<size_t>(lines.first(static_cast<int64_t>(n)));
  for (size_t j = worker.thread; j < static_cast<size_t>(lines.size); j += Worker::size)
    fn(j, first + j * static_cast<size_t>(lines.inner));
}

// A line's log(sum(exp(x))) and its loss.
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
    each_element(lines, n, worker, [&](size_t j, size_t at) {
      const double share = targets.share(n, j);
      if (share != 0) loss += share * (log_sum - static_cast<double>(x[at]));
    });
    loss = worker.sum(loss);
    if (worker.thread > 0) return;
    targets.check(n);
    log_sums[n] = lines.size > 0 ? log_sum : 0;
    losses[n] = loss;
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

  Losses(const Call& call, const Context<T>& context, gpu::In<T> x)
      : log_sums(call, context.targets.count), losses(call, context.targets.count), sums(call, 2) {
    gpu::each_line(call, context.lines, LossOfLine<T>{context.lines, context.targets, x, log_sums.data, losses.data});
    weighted = gpu::weighted_sums(call, context.targets, losses.data, sums.data);
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
  Losses<T> of(call, context, x);
  gpu::each_line(call, context.lines, TargetLine<T>{context, of.weighted, of.log_sums.data, of.losses.data, x, dt, dw});
}

// P's and T's gradients, and q.
template <class T>
struct SecondLine {
  Context<T> context;
  gpu::WeightedSums total;
  gpu::In<T> p, u;
  gpu::Out<T> gp, gt;
  double* q;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const gpu::DeviceTargets<T>& targets = context.targets;
    if (targets.ignored(n)) {
      targets.check(n);
      if (worker.thread == 0) q[n] = 0;
      each_element(context.lines, n, worker, [&](size_t, size_t at) {
        if (gp.data) gp[at] = T(0);
      });
      return;
    }
    const double sum = targets.shares_sum(n, worker), factor = context.factor(total) * targets.weight(n);
    double along = 0, target_along = 0;
    each_element(context.lines, n, worker, [&](size_t j, size_t at) {
      along += static_cast<double>(u[at]) * static_cast<double>(p[at]);
      target_along += static_cast<double>(u[at]) * targets.share(n, j);
      if (gp.data) gp[at] = static_cast<T>(factor * sum * static_cast<double>(u[at]));
    });
    along = worker.sum(along);
    target_along = worker.sum(target_along);
    if (worker.thread == 0) q[n] = along * sum - target_along;
    each_element(context.lines, n, worker, [&](size_t, size_t at) {
      if (gt.data) gt[at] = static_cast<T>(factor * (along - static_cast<double>(u[at])));
    });
  }
};

template <class T>
void second_gradient(const LossArgs& a, gpu::In<T> p, const Tensor& target, gpu::In<T> dloss, gpu::In<T> u,
                     gpu::In<T> weights, gpu::Out<T> gp, gpu::Out<T> gt, gpu::Out<T> gdloss, gpu::Out<T> gw,
                     Call& call) {
  const Context<T> context(call, a, target, weights, dloss);
  gpu::Temporary<double> q(call, context.targets.count), sums(call, 2), all(call, 1);
  const gpu::WeightedSums total = gpu::weighted_sums(call, context.targets, nullptr, all.data);
  gpu::each_line(call, context.lines, SecondLine<T>{context, total, p, u, gp, gt, q.data});
  const gpu::WeightedSums weighted = gpu::weighted_sums(call, context.targets, q.data, sums.data);
  const double* const of_line = q.data;
  gpu::each(call, gw.size, [=] __device__(size_t n) {
    gw[n] =
        context.targets.ignored(n) ? T(0) : static_cast<T>(context.factor(weighted) * (of_line[n] - weighted.mean()));
  });
  gpu::each(call, gdloss.size,
            [=] __device__(size_t i) { gdloss[i] = static_cast<T>(context.scale * weighted.mean()); });
}

// The gradients of the targets' and weights' gradients. An empty v or z is zeros. Sums over lines: s of v e, and of z
// alone and times the distance of the loss from its mean.
template <class T>
struct TargetSecond {
  Context<T> context;
  gpu::In<T> x, v, z;
  const double *log_sums, *losses;
  gpu::WeightedSums weighted;
  double *along, *z_sums;

  __device__ double z_of(size_t n) const {
    return z.data && !context.targets.ignored(n) ? static_cast<double>(z[n]) : 0;
  }
  __device__ double v_of(size_t at) const { return v.data ? static_cast<double>(v[at]) : 0; }
  __device__ double surprise(size_t n, size_t at) const { return log_sums[n] - static_cast<double>(x[at]); }
  __device__ double z_sum() const { return z_sums[0]; }
  __device__ double outside() const { return z_sums[1]; }
};

template <class T>
struct AlongLine : TargetSecond<T> {
  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    double sum = 0;
    if (!this->context.targets.ignored(n))
      each_element(this->context.lines, n, worker,
                   [&](size_t, size_t at) { sum += this->v_of(at) * this->surprise(n, at); });
    sum = worker.sum(sum);
    if (worker.thread == 0) this->along[n] = sum;
  }
};

template <class T>
struct TargetSecondLine : TargetSecond<T> {
  gpu::Out<T> gx, gt;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const Context<T>& context = this->context;
    const double c = context.factor(this->weighted), weight = context.targets.weight(n);
    const double b =
        context.targets.ignored(n) ? 0 : c * (this->z_of(n) - weight * this->z_sum() * this->weighted.by_total());
    double sum = 0;
    each_element(context.lines, n, worker,
                 [&](size_t j, size_t at) { sum += c * weight * this->v_of(at) + b * context.targets.share(n, j); });
    sum = worker.sum(sum);
    each_element(context.lines, n, worker, [&](size_t j, size_t at) {
      const double a = c * weight * this->v_of(at) + b * context.targets.share(n, j), e = this->surprise(n, at);
      if (gx.data) gx[at] = static_cast<T>(exp(-e) * sum - a);
      if (gt.data) gt[at] = static_cast<T>(b * e);
    });
  }
};

template <class T>
void put_sums(const Call& call, const TargetSecond<T>& second, const gpu::WeightedSums& of_along, gpu::Out<T> gdloss,
              gpu::Out<T> gw) {
  gpu::each(call, gw.size, [=] __device__(size_t n) {
    const double mean = second.weighted.mean(), by_total = second.weighted.by_total();
    const double of_total = (second.outside() + second.z_sum() * (second.losses[n] - mean)) * by_total;
    const double slope = second.context.factor(second.weighted) * (second.along[n] - of_along.mean() - of_total);
    gw[n] = second.context.targets.ignored(n) ? T(0) : static_cast<T>(slope);
  });
  gpu::each(call, gdloss.size, [=] __device__(size_t i) {
    const double sum = of_along.mean() + second.outside() * second.weighted.by_total();
    gdloss[i] = static_cast<T>(second.context.scale * sum);
  });
}

template <class T>
void target_second_gradient(const LossArgs& a, gpu::In<T> x, const Tensor& target, gpu::In<T> dloss, gpu::In<T> v,
                            gpu::In<T> z, gpu::In<T> weights, gpu::Out<T> gx, gpu::Out<T> gt, gpu::Out<T> gdloss,
                            gpu::Out<T> gw, Call& call) {
  const Context<T> context(call, a, target, weights, dloss);
  const int64_t count = context.targets.count;
  Losses<T> of(call, context, x);
  gpu::Temporary<double> along(call, count), z_sums(call, 2), along_sums(call, 2);
  const TargetSecond<T> second{context,        x,           v,          z,          of.log_sums.data,
                               of.losses.data, of.weighted, along.data, z_sums.data};
  gpu::each_line(call, context.lines, AlongLine<T>{second});
  double* const sums = z_sums.data;
  gpu::reduce(
      call, {2, count, 1}, 0.0,
      [=] __device__(size_t which, size_t n, size_t) {
        return second.z_of(n) * (which == 0 ? 1 : second.losses[n] - second.weighted.mean());
      },
      std::plus<double>(), [=] __device__(size_t which, size_t, double sum) { sums[which] = sum; });
  const gpu::WeightedSums of_along = gpu::weighted_sums(call, context.targets, along.data, along_sums.data);
  gpu::each_line(call, context.lines, TargetSecondLine<T>{second, gx, gt});
  put_sums(call, second, of_along, gdloss, gw);
}

REGISTER(softmax_loss_target_gradient_cuda) {
  return cuda<LossArgs>("SoftmaxLossTargetGradient", target_gradient<float>, target_gradient<double>);
}
REGISTER(softmax_loss_second_gradient_cuda) {
  return cuda<LossArgs>("SoftmaxLossSecondGradient", second_gradient<float>, second_gradient<double>);
}
REGISTER(softmax_loss_target_second_gradient_cuda) {
  return cuda<LossArgs>("SoftmaxLossTargetSecondGradient", target_second_gradient<float>,
                        target_second_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_softmax_with_loss_second
