// TransducerLoss (Graves 2012, "Sequence transduction with recurrent neural networks"), as torchaudio's rnnt_loss: of
// each sample the negative logarithm of the probability of its labels, summed over all alignments. An alignment goes
// through the nodes (t, u), from (0, 0): by the blank to (t + 1, u), by label u to (t, u + 1), and ends by the blank at
// the last timestep behind the last label. P = softmax of the logits, so that logarithms of probabilities are logits,
// too:
//
//   loss[b] = -log(sum over alignments of the product over steps of P[b, t, u, class of the step])
//
// The sum is taken by the recursion over beginnings (alpha) and ends (beta), as logarithms, in double.
//
// dlogits[b, t, u, c] = (share(t, u) P[b, t, u, c] - share of the alignments that leave (t, u) by c) dloss[b], where
// share(t, u) is that of the alignments that pass the node; 0 behind the sample's end. It computes all again from the
// logits. Its derivative along a direction, which is the Hessian times that, runs the same recursion on numbers that
// have derivatives. Third derivatives are refused.
#include "operators/loss/transducer_loss.h"

#include <algorithm>
#include <vector>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loss/alignment_derivatives.h"

namespace stepnet::cpu_transducer_loss {
namespace {

// The inputs of a call whose first four are those of the loss, checked.
template <class T>
struct Batch {
  TransducerSizes sizes;
  Wholes labels, times, lengths;
  int64_t blank;

  Batch(const TransducerArgs& a, const Call& call)
      : sizes(TransducerSizes::of(call)),
        labels(wholes(call.in(1))),
        times(wholes(call.in(2))),
        lengths(wholes(call.in(3))),
        blank(a.blank_of(sizes.classes)) {
    check_sample_lengths("logit_lengths", times, sizes.samples, 1, sizes.times);
    check_sample_lengths("target_lengths", lengths, sizes.samples, 0, sizes.width - 1);
    check_sample_labels(labels, lengths, sizes.samples, sizes.width - 1, sizes.classes, blank);
  }

  int64_t nodes() const { return sizes.times * sizes.width; }  // of a sample

  // With the logarithms of its sums, which are written to `log_sums`.
  template <class N>
  TransducerSample<N, T> sample(int64_t b, Scores<N, T> scores, std::vector<N>& log_sums) const {
    const Scores<N, T> own = scores.from(b * nodes() * sizes.classes);
    log_sums.resize(static_cast<size_t>(times[b] * sizes.width));
    for (int64_t t = 0; t < times[b]; ++t)
      for (int64_t at = t * sizes.width; at <= t * sizes.width + lengths[b]; ++at)
        log_sums[at] = own.from(at * sizes.classes).log_sum_of(sizes.classes);
    return {own,           log_sums.data(), labels,    b * (sizes.width - 1), blank, sizes.width,
            sizes.classes, times[b],        lengths[b]};
  }

  // Calls fn(first, last) on ranges of samples, from several threads.
  template <class Fn>
  void each_range(double passes, Fn fn) const {
    const double node = 30 + 10 * static_cast<double>(sizes.classes);
    parallel_for(sizes.samples, 1 + passes * node * static_cast<double>(nodes()), fn);
  }
};

template <class N, class T>
void alphas_of(const TransducerSample<N, T>& sample, std::vector<N>& alphas) {
  alphas.resize(static_cast<size_t>(sample.times * sample.width));
  for (int64_t t = 0; t < sample.times; ++t)
    for (int64_t u = 0; u <= sample.length; ++u) alphas[sample.node(t, u)] = sample.alpha(t, u, alphas.data());
}

template <class T>
void forward(const TransducerArgs& a, In<T> x, const Tensor&, const Tensor&, const Tensor&, Out<T> loss, Call& call) {
  const Batch<T> batch(a, call);
  const int64_t samples = batch.sizes.samples;
  std::vector<double> losses(static_cast<size_t>(samples));
  batch.each_range(1, [&](int64_t begin, int64_t end) {
    std::vector<double> log_sums, alphas;
    for (int64_t b = begin; b < end; ++b) {
      const auto sample = batch.sample(b, Scores<double, T>{x.data()}, log_sums);
      alphas_of(sample, alphas);
      losses[b] = 0 - sample.total(alphas.data());
    }
  });
  const LossReduction reduction = loss_reduction(a.reduction);
  if (reduction == LossReduction::none) {
    std::ranges::transform(losses, loss.begin(), [](double l) { return static_cast<T>(l); });
    return;
  }
  double sum = 0;
  for (const double l : losses) sum += l;
  loss[0] = static_cast<T>(reduction == LossReduction::mean && samples > 0 ? sum / static_cast<double>(samples) : sum);
}

template <class N>
struct Room {
  std::vector<N> log_sums, alphas, betas;
};

// Writes the gradient of a sample's loss times `factor`, or the derivative of that.
template <class N, class T>
void sample_gradient(const TransducerSample<N, T>& sample, double factor, Room<N>& room, T* y) {
  alphas_of(sample, room.alphas);
  room.betas.resize(room.alphas.size());
  for (int64_t t = sample.times - 1; t >= 0; --t)
    for (int64_t u = sample.length; u >= 0; --u) room.betas[sample.node(t, u)] = sample.beta(t, u, room.betas.data());
  const N total = room.betas[0];
  if (is_impossible(value_of(total))) factor = std::numeric_limits<double>::quiet_NaN();  // the loss is infinite
  for (int64_t t = 0; t < sample.times; ++t)
    for (int64_t u = 0; u <= sample.length; ++u) {
      const auto shares = NodeShares<N>::of(sample, t, u, room.alphas.data(), room.betas.data(), total);
      const int64_t at = sample.node(t, u);
      for (int64_t c = 0; c < sample.classes; ++c)
        y[at * sample.classes + c] =
            static_cast<T>(factor * result_of(shares.of_class(c, exp_of(sample.log_p(at, c)))));
    }
}

template <class N, class T>
void gradients(const TransducerArgs& a, Scores<N, T> scores, In<T> dloss, Out<T> y, Call& call) {
  const Batch<T> batch(a, call);
  const LossReduction reduction = loss_reduction(a.reduction);
  const double share = reduction == LossReduction::mean ? static_cast<double>(batch.sizes.samples) : 1;
  std::ranges::fill(y, T(0));
  batch.each_range(std::is_same_v<N, Dual> ? 5 : 3, [&](int64_t begin, int64_t end) {
    Room<N> room;
    for (int64_t b = begin; b < end; ++b) {
      const double factor = static_cast<double>(dloss[reduction == LossReduction::none ? b : 0]) / share;
      sample_gradient(batch.sample(b, scores, room.log_sums), factor, room,
                      y.data() + b * batch.nodes() * batch.sizes.classes);
    }
  });
}

template <class T>
void gradient(const TransducerArgs& a, In<T> x, const Tensor&, const Tensor&, const Tensor&, In<T> dloss, Out<T> dx,
              Call& call) {
  gradients(a, Scores<double, T>{x.data()}, dloss, dx, call);
}

template <class T>
void hessian(const TransducerArgs& a, In<T> x, const Tensor&, const Tensor&, const Tensor&, In<T> dloss, In<T> v,
             Out<T> y, Call& call) {
  gradients(a, Scores<Dual, T>{x.data(), v.data()}, dloss, y, call);
}

// Of the four inputs of the loss.
void check_inputs(const TransducerArgs& a, const ShapeCall& c) {
  if (!c.known(0)) return;
  const Shape& x = c.shape(0);
  require(x.rank() == 4 && x[2] > 0 && x[3] > 0, "logits is {}, but must be [B, T, U + 1, C], with a class at least",
          x);
  const int64_t blank = a.blank_of(x[3]);
  require(blank >= 0 && blank < x[3], "the blank is {}, but logits {} have classes 0..{}", a.blank, x, x[3] - 1);
  if (c.known(1))
    require(c.shape(1) == Shape({x[0], x[2] - 1}), "targets is {}, but for logits {} must be [{}, {}]", c.shape(1), x,
            x[0], x[2] - 1);
  for (const auto& [i, name] : {std::pair{2, "logit_lengths"}, {3, "target_lengths"}})
    if (c.known(i)) require(c.shape(i) == Shape{x[0]}, "{} is {}, but must be [{}]", name, c.shape(i), x[0]);
}

void infer(const TransducerArgs& a, ShapeCall& c) {
  check_inputs(a, c);
  if (c.known(0)) c.set(0, c.dtype(0), reduced_shape(a.reduction, c.shape(0)[0]));
}

void infer_gradient(const TransducerArgs& a, ShapeCall& c) {
  check_inputs(a, c);
  if (c.known(0) && c.known(4)) {
    const Shape loss = reduced_shape(a.reduction, c.shape(0)[0]);
    require(c.shape(4).size() == loss.size(), "dloss is {}, but the loss {}", c.shape(4), loss);
  }
  if (c.known(0) && c.known(5)) require(c.shape(5) == c.shape(0), "V is {}, but logits {}", c.shape(5), c.shape(0));
  c.set_like(0, 0);
}

// Operations of a class of a node, of a node, and of a sample.
double all_flops(const ShapeCall& c, double of_class, double of_node, double of_sample) {
  if (!c.known(0)) return 0;
  const Shape& x = c.shape(0);
  const double nodes = static_cast<double>(x[1]) * static_cast<double>(x[2]);
  return static_cast<double>(x[0]) * (nodes * (of_class * static_cast<double>(x[3]) + of_node) + of_sample);
}

double flops(const TransducerArgs& a, const ShapeCall& c) {
  const bool mean = a.reduction == "mean" && c.known(0) && c.shape(0)[0] > 0;
  return all_flops(c, 3, 2 + 12, a.reduction == "none" ? 2 : 3) + int{mean};
}

double gradient_flops(const TransducerArgs& a, const ShapeCall& c) {
  return all_flops(c, 3 + 4, 2 + 12 + 12 + 13 + 2, a.reduction == "mean" ? 1 : 0);
}

double hessian_flops(const TransducerArgs& a, const ShapeCall& c) {
  return all_flops(c, 5 + 9, 3 + 21 + 21 + 26 + 4, a.reduction == "mean" ? 1 : 0);
}

std::vector<int64_t> gpu_forward_workspace(const TransducerArgs&, const Call& call) {
  const TransducerSizes s = TransducerSizes::of(call);
  const int64_t number = sizeof(double);
  return {number * s.nodes(), number * s.nodes(), number * s.samples};
}

// Sums' logarithms, alphas and betas.
template <class N>
std::vector<int64_t> gpu_workspace(const TransducerArgs&, const Call& call) {
  const int64_t bytes = static_cast<int64_t>(sizeof(N)) * TransducerSizes::of(call).nodes();
  return {bytes, bytes, bytes};
}

OpBuilder<TransducerArgs>& declare(OpBuilder<TransducerArgs>& b) {
  return b.own()
      .arg("blank", &TransducerArgs::blank, int64_t{-1}, "the class that stands for no label; below 0 from the end")
      .arg("reduction", &TransducerArgs::reduction, std::string("mean"), "mean, sum or none",
           one_of({"mean", "sum", "none"}))
      .input("logits",
             "[B, T, U + 1, C], for B samples scores of C classes at each timestep behind each number of labels; or "
             "logarithms of probabilities")
      .input("targets", "[B, U], labels of each sample; those behind target_lengths are not read")
      .types({DType::int32, DType::int64})
      .input("logit_lengths", "[B], how many timesteps of each sample count, from 1 to T")
      .types({DType::int32, DType::int64})
      .input("target_lengths", "[B], how many labels of each sample count, from 0 to U")
      .types({DType::int32, DType::int64});
}

const AlignmentLoss& alignment_loss() {
  static const AlignmentLoss loss{
      "TransducerLoss", {"logits", "targets", "logit_lengths", "target_lengths"}, {1, 2, 3}};
  return loss;
}

bool is_each(Formula& f) { return f.args<TransducerArgs>().reduction == "none"; }

REGISTER(transducer_loss) {
  OpBuilder<TransducerArgs> b("TransducerLoss");
  return declare(b)
      .doc(
          "The loss of a recurrent transducer (RNN-T): the negative logarithm of the probability of labels, summed "
          "over "
          "all ways in which they may stand between timesteps.")
      .output("loss", "a scalar, or [B] with the reduction none")
      .shape(infer)
      .flops(flops)
      .gpu_workspace(gpu_forward_workspace)
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("logits",
                  [](Formula& f) {
                    std::vector<Value> inputs = alignment_loss().values(f);
                    inputs.push_back(f.dy("loss"));
                    return f.op("TransducerLossGradient", inputs, f.forward_args());
                  })
      .example(
          {"logits=2,3,3,4", "targets=int32,2,2:1,2,0,9", "logit_lengths=int32,2:3,2", "target_lengths=int32,2:2,1"})
      .example({"logits=2,2,2,3", "targets=int64,2,1:1,7", "logit_lengths=int64,2:1,2", "target_lengths=int64,2:1,0"},
               {"blank=0", "reduction=none"})
      .example({"logits=1,2,3,3", "targets=int32,1,2:1,1", "logit_lengths=int32,1:2", "target_lengths=int32,1:2"},
               {"blank=-3", "reduction=sum"})
      .example({"logits=0,2,2,3", "targets=int32,0,1", "logit_lengths=int32,0", "target_lengths=int32,0"});
}

REGISTER(transducer_loss_gradient) {
  OpBuilder<TransducerArgs> b("TransducerLossGradient");
  return declare(b)
      .doc("Gradient of TransducerLoss.")
      .input("dloss", "gradient of its loss")
      .output("dlogits", "like logits")
      .shape(infer_gradient)
      .flops(gradient_flops)
      .gpu_workspace(gpu_workspace<double>)
      .cpu(gradient<float>, gradient<double>)
      .derivative("logits", [](Formula& f) { return alignment_loss().times_hessian(f, f.dy("dlogits")); })
      .derivative("dloss", [](Formula& f) { return alignment_loss().by_dloss(f, is_each(f), {}, f.dy("dlogits")); });
}

REGISTER(transducer_loss_hessian) {
  OpBuilder<TransducerArgs> b("TransducerLossHessian");
  return declare(b)
      .doc("The Hessian of TransducerLoss with respect to the logits, times V. It has no derivative by the logits.")
      .input("dloss", "gradient of its loss")
      .input("V", "like logits")
      .output("Y", "like logits")
      .shape(infer_gradient)
      .flops(hessian_flops)
      .gpu_workspace(gpu_workspace<Dual>)
      .cpu(hessian<float>, hessian<double>)
      .derivative("V", [](Formula& f) { return alignment_loss().times_hessian(f, f.dy("Y")); })
      .derivative("dloss", [](Formula& f) { return alignment_loss().by_dloss(f, is_each(f), {f.x("V")}, f.dy("Y")); });
}

}  // namespace
}  // namespace stepnet::cpu_transducer_loss
