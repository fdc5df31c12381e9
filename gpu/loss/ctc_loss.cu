// CUDA kernels for CTCLoss, its gradient and its Hessian. Meaning and derivatives: see operators/loss/ctc_loss.cc. A
// team has a sample, and its threads states, one timestep behind the other. A sample with bad labels or lengths gets
// zeros.
#include "operators/loss/ctc_loss.h"

#include "gpu/loops/log_sums.h"
#include "gpu/loops/temporary.h"

namespace stepnet::gpu_ctc_loss {
namespace {

// What kernels have of all samples.
template <class N, class T>
struct Batch {
  CtcSizes sizes;
  gpu::SampleChecks checks;
  Scores<N, T> scores;
  const N* log_sums;
  N* alphas;  // rows of states of each sample, taken in turn
  int64_t rows, states;

  Batch(const Call& call, const CtcArgs& a, Scores<N, T> of_all, N* sums, N* places, int64_t in_turn)
      : sizes(CtcSizes::of(call)),
        checks(call, sizes.places, sizes.times, 0, sizes.classes, a.blank),
        scores(of_all),
        log_sums(sums),
        alphas(places),
        rows(in_turn),
        states(sizes.states()) {
    gpu::log_sums_of_rows(call, scores, sizes.times * sizes.samples, sizes.classes, sums);
  }

  __device__ CtcSample<N, T> sample(int64_t b) const {
    return {scores.from(b * sizes.classes),
            sizes.samples * sizes.classes,
            log_sums + b,
            sizes.samples,
            checks.labels,
            b * sizes.places,
            checks.blank,
            checks.times[b],
            checks.lengths[b]};
  }
  __device__ N* alpha(int64_t b, int64_t row) const { return alphas + (b * rows + row % rows) * states; }

  // Writes the rows; all threads see them.
  __device__ void run_alphas(const CtcSample<N, T>& sample, int64_t b, const gpu::Team& team) const {
    for (int64_t s = team.thread; s < sample.states(); s += gpu::Team::size) alpha(b, 0)[s] = sample.before_all(s);
    team.sync();
    for (int64_t t = 0; t < sample.times; ++t) {
      for (int64_t s = team.thread; s < sample.states(); s += gpu::Team::size)
        alpha(b, t + 1)[s] = sample.alpha(t, s, alpha(b, t));
      team.sync();
    }
  }
};

template <class T>
void forward(const CtcArgs& a, gpu::In<T> x, const Tensor&, const Tensor&, const Tensor&, gpu::Out<T> loss,
             Call& call) {
  const CtcSizes sizes = CtcSizes::of(call);
  const gpu::Temporary<double> sums(call, sizes.times * sizes.samples);
  const gpu::Temporary<double> places(call, sizes.samples * 2 * sizes.states());
  const gpu::Temporary<double> each(call, sizes.samples);
  const Batch<double, T> batch(call, a, {x.data, nullptr}, sums.data, places.data, 2);
  const bool zero = a.zero_infinity;
  double* const losses = each.data;
  gpu::each_team(call, static_cast<size_t>(sizes.samples), [=] __device__(size_t at, const gpu::Team& team) {
    const auto b = static_cast<int64_t>(at);
    if (!batch.checks.fits(b)) {
      losses[b] = 0;
      return;
    }
    const CtcSample<double, T> sample = batch.sample(b);
    batch.run_alphas(sample, b, team);
    const double total = sample.total(batch.alpha(b, sample.times));
    if (team.thread == 0) losses[b] = is_impossible(total) && zero ? 0 : 0 - total;
    team.sync();
  });
  const LossReduction reduction = loss_reduction(a.reduction);
  if (reduction == LossReduction::none)
    return gpu::each(call, loss.size, [=] __device__(size_t b) { loss[b] = static_cast<T>(losses[b]); });
  const Wholes lengths = batch.checks.lengths;
  const int64_t samples = sizes.samples;
  gpu::each(call, 1, [=] __device__(size_t) {
    double sum = 0;
    for (int64_t b = 0; b < samples; ++b) sum += ctc_part(reduction, losses[b], lengths[b]);
    const bool mean = reduction == LossReduction::mean && samples > 0;
    loss[0] = static_cast<T>(mean ? sum / static_cast<double>(samples) : sum);
  });
}

// Of a sample: beta at a timestep, the same with the probabilities there, and each state's share.
template <class N>
struct Rows {
  N *beta, *after, *shares;
};

// Writes the gradient of the sample's loss, times `factor`, at timestep t; the beta of that timestep is there.
template <class N, class T>
__device__ void write_timestep(const CtcSample<N, T>& sample, int64_t t, int64_t classes, double factor,
                               const N* shares, T* y, const gpu::Team& team) {
  for (int64_t c = team.thread; c < classes; c += gpu::Team::size) {
    N rest = exp_of(sample.log_share(t, c));
    for (int64_t s = c == sample.blank ? 0 : 1; s < sample.states(); s += 2)
      if (sample.label(s) == c) rest = rest - shares[s];
    y[t * sample.stride + c] = static_cast<T>(factor * result_of(rest));
  }
}

template <class N, class T>
__device__ void run_back(const CtcSample<N, T>& sample, const Batch<N, T>& batch, int64_t b, double factor,
                         const Rows<N>& rows, T* y, const gpu::Team& team) {
  const int64_t states = sample.states();
  const N total = sample.total(batch.alpha(b, sample.times));
  for (int64_t s = team.thread; s < states; s += gpu::Team::size) rows.after[s] = sample.after_all(s);
  team.sync();
  for (int64_t t = sample.times - 1; t >= 0; --t) {
    for (int64_t s = team.thread; s < states; s += gpu::Team::size) {
      rows.beta[s] = sample.beta(s, rows.after);
      rows.shares[s] = exp_of(batch.alpha(b, t + 1)[s] + rows.beta[s] - total);
    }
    team.sync();
    for (int64_t s = team.thread; s < states; s += gpu::Team::size) rows.after[s] = rows.beta[s] + sample.log_p(t, s);
    write_timestep(sample, t, batch.sizes.classes, factor, rows.shares, y, team);
    team.sync();
  }
}

template <class N, class T>
void gradients(const CtcArgs& a, Scores<N, T> scores, gpu::In<T> dloss, gpu::Out<T> y, Call& call) {
  const CtcSizes sizes = CtcSizes::of(call);
  const int64_t states = sizes.states();
  const gpu::Temporary<N> sums(call, sizes.times * sizes.samples);
  const gpu::Temporary<N> places(call, sizes.samples * (sizes.times + 1) * states);
  const gpu::Temporary<N> more(call, sizes.samples * 3 * states);
  const Batch<N, T> batch(call, a, scores, sums.data, places.data, sizes.times + 1);
  N* const rows = more.data;
  const bool zero = a.zero_infinity;
  const LossReduction reduction = loss_reduction(a.reduction);
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = T(0); });
  gpu::each_team(call, static_cast<size_t>(sizes.samples), [=] __device__(size_t at, const gpu::Team& team) {
    const auto b = static_cast<int64_t>(at);
    if (!batch.checks.fits(b)) return;
    const CtcSample<N, T> sample = batch.sample(b);
    batch.run_alphas(sample, b, team);
    const double of_loss = static_cast<double>(dloss[reduction == LossReduction::none ? at : 0]);
    double factor = ctc_factor(reduction, of_loss, batch.sizes.samples, sample.length);
    if (is_impossible(value_of(sample.total(batch.alpha(b, sample.times))))) {
      if (zero) return;
      factor = std::numeric_limits<double>::quiet_NaN();
    }
    N* const own = rows + b * 3 * states;
    run_back(sample, batch, b, factor, Rows<N>{own, own + states, own + 2 * states}, y.data + b * batch.sizes.classes,
             team);
  });
}

template <class T>
void gradient(const CtcArgs& a, gpu::In<T> x, const Tensor&, const Tensor&, const Tensor&, gpu::In<T> dloss,
              gpu::Out<T> dx, Call& call) {
  gradients(a, Scores<double, T>{x.data, nullptr}, dloss, dx, call);
}

template <class T>
void hessian(const CtcArgs& a, gpu::In<T> x, const Tensor&, const Tensor&, const Tensor&, gpu::In<T> dloss,
             gpu::In<T> v, gpu::Out<T> y, Call& call) {
  gradients(a, Scores<Dual, T>{x.data, v.data}, dloss, y, call);
}

REGISTER(ctc_loss_cuda) { return cuda<CtcArgs>("CTCLoss", forward<float>, forward<double>); }
REGISTER(ctc_loss_gradient_cuda) { return cuda<CtcArgs>("CTCLossGradient", gradient<float>, gradient<double>); }
REGISTER(ctc_loss_hessian_cuda) { return cuda<CtcArgs>("CTCLossHessian", hessian<float>, hessian<double>); }

}  // namespace
}  // namespace stepnet::gpu_ctc_loss
