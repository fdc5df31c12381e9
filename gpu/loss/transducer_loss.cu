// CUDA kernels for TransducerLoss, its gradient and its Hessian. Meaning and derivatives: see
// operators/loss/transducer_loss.cc. A team has a sample, and its threads the nodes (t, u) of one sum t + u, which do
// not depend on each other. A sample with bad labels or lengths gets zeros.
#include "operators/loss/transducer_loss.h"

#include "gpu/loops/log_sums.h"
#include "gpu/loops/temporary.h"

namespace stepnet::gpu_transducer_loss {
namespace {

// What kernels have of all samples.
template <class N, class T>
struct Batch {
  TransducerSizes sizes;
  gpu::SampleChecks checks;
  Scores<N, T> scores;
  const N* log_sums;
  N* alphas;

  Batch(const Call& call, const TransducerArgs& a, Scores<N, T> of_all, N* sums, N* places)
      : sizes(TransducerSizes::of(call)),
        checks(call, sizes.width - 1, sizes.times, 1, sizes.classes, a.blank_of(sizes.classes)),
        scores(of_all),
        log_sums(sums),
        alphas(places) {
    gpu::log_sums_of_rows(call, scores, sizes.nodes(), sizes.classes, sums);
  }

  __device__ int64_t first_node(int64_t b) const { return b * sizes.times * sizes.width; }
  __device__ TransducerSample<N, T> sample(int64_t b) const {
    return {scores.from(first_node(b) * sizes.classes),
            log_sums + first_node(b),
            checks.labels,
            b * (sizes.width - 1),
            checks.blank,
            sizes.width,
            sizes.classes,
            checks.times[b],
            checks.lengths[b]};
  }

  // All threads see them.
  __device__ void run_alphas(const TransducerSample<N, T>& sample, N* own, const gpu::Team& team) const {
    for (int64_t sum = 0; sum < sample.times + sample.length; ++sum) {
      for (int64_t u = team.thread; u <= sample.length; u += gpu::Team::size)
        if (const int64_t t = sum - u; t >= 0 && t < sample.times) own[sample.node(t, u)] = sample.alpha(t, u, own);
      team.sync();
    }
  }
};

template <class T>
void forward(const TransducerArgs& a, gpu::In<T> x, const Tensor&, const Tensor&, const Tensor&, gpu::Out<T> loss,
             Call& call) {
  const TransducerSizes sizes = TransducerSizes::of(call);
  const gpu::Temporary<double> sums(call, sizes.nodes()), places(call, sizes.nodes()), each(call, sizes.samples);
  const Batch<double, T> batch(call, a, {x.data, nullptr}, sums.data, places.data);
  double* const losses = each.data;
  gpu::each_team(call, static_cast<size_t>(sizes.samples), [=] __device__(size_t at, const gpu::Team& team) {
    const auto b = static_cast<int64_t>(at);
    if (!batch.checks.fits(b)) {
      losses[b] = 0;
      return;
    }
    const TransducerSample<double, T> sample = batch.sample(b);
    double* const own = batch.alphas + batch.first_node(b);
    batch.run_alphas(sample, own, team);
    if (team.thread == 0) losses[b] = 0 - sample.total(own);
  });
  const LossReduction reduction = loss_reduction(a.reduction);
  if (reduction == LossReduction::none)
    return gpu::each(call, loss.size, [=] __device__(size_t b) { loss[b] = static_cast<T>(losses[b]); });
  const int64_t samples = sizes.samples;
  gpu::each(call, 1, [=] __device__(size_t) {
    double sum = 0;
    for (int64_t b = 0; b < samples; ++b) sum += losses[b];
    const bool mean = reduction == LossReduction::mean && samples > 0;
    loss[0] = static_cast<T>(mean ? sum / static_cast<double>(samples) : sum);
  });
}

template <class N, class T>
__device__ void run_betas(const TransducerSample<N, T>& sample, N* betas, const gpu::Team& team) {
  for (int64_t sum = sample.times + sample.length - 1; sum >= 0; --sum) {
    for (int64_t u = team.thread; u <= sample.length; u += gpu::Team::size)
      if (const int64_t t = sum - u; t >= 0 && t < sample.times) betas[sample.node(t, u)] = sample.beta(t, u, betas);
    team.sync();
  }
}

// Of the nodes that count, node after node; the threads have the classes.
template <class N, class T>
__device__ void write_nodes(const TransducerSample<N, T>& sample, double factor, const N* alphas, const N* betas, T* y,
                            const gpu::Team& team) {
  const N total = betas[0];
  if (is_impossible(value_of(total))) factor = std::numeric_limits<double>::quiet_NaN();
  for (int64_t t = 0; t < sample.times; ++t)
    for (int64_t u = 0; u <= sample.length; ++u) {
      const auto shares = NodeShares<N>::of(sample, t, u, alphas, betas, total);
      const int64_t at = sample.node(t, u);
      for (int64_t c = team.thread; c < sample.classes; c += gpu::Team::size)
        y[at * sample.classes + c] =
            static_cast<T>(factor * result_of(shares.of_class(c, exp_of(sample.log_p(at, c)))));
    }
}

template <class N, class T>
void gradients(const TransducerArgs& a, Scores<N, T> scores, gpu::In<T> dloss, gpu::Out<T> y, Call& call) {
  const TransducerSizes sizes = TransducerSizes::of(call);
  const gpu::Temporary<N> sums(call, sizes.nodes()), places(call, sizes.nodes()), ends(call, sizes.nodes());
  const Batch<N, T> batch(call, a, scores, sums.data, places.data);
  N* const betas = ends.data;
  const LossReduction reduction = loss_reduction(a.reduction);
  const double share = reduction == LossReduction::mean ? static_cast<double>(sizes.samples) : 1;
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = T(0); });
  gpu::each_team(call, static_cast<size_t>(sizes.samples), [=] __device__(size_t at, const gpu::Team& team) {
    const auto b = static_cast<int64_t>(at);
    if (!batch.checks.fits(b)) return;
    const TransducerSample<N, T> sample = batch.sample(b);
    const int64_t first = batch.first_node(b);
    batch.run_alphas(sample, batch.alphas + first, team);
    run_betas(sample, betas + first, team);
    const double factor = static_cast<double>(dloss[reduction == LossReduction::none ? at : 0]) / share;
    write_nodes(sample, factor, batch.alphas + first, betas + first, y.data + first * sample.classes, team);
  });
}

template <class T>
void gradient(const TransducerArgs& a, gpu::In<T> x, const Tensor&, const Tensor&, const Tensor&, gpu::In<T> dloss,
              gpu::Out<T> dx, Call& call) {
  gradients(a, Scores<double, T>{x.data, nullptr}, dloss, dx, call);
}

template <class T>
void hessian(const TransducerArgs& a, gpu::In<T> x, const Tensor&, const Tensor&, const Tensor&, gpu::In<T> dloss,
             gpu::In<T> v, gpu::Out<T> y, Call& call) {
  gradients(a, Scores<Dual, T>{x.data, v.data}, dloss, y, call);
}

REGISTER(transducer_loss_cuda) { return cuda<TransducerArgs>("TransducerLoss", forward<float>, forward<double>); }
REGISTER(transducer_loss_gradient_cuda) {
  return cuda<TransducerArgs>("TransducerLossGradient", gradient<float>, gradient<double>);
}
REGISTER(transducer_loss_hessian_cuda) {
  return cuda<TransducerArgs>("TransducerLossHessian", hessian<float>, hessian<double>);
}

}  // namespace
}  // namespace stepnet::gpu_transducer_loss
