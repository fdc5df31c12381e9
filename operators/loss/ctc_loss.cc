// CTCLoss, connectionist temporal classification (Graves et al. 2006), as PyTorch's ctc_loss defines it: of each sample
// the negative logarithm of the probability of its labels, which is the sum over all alignments. An alignment says for
// each timestep a class or the blank; without repetitions, and then without blanks, it is the labels. P = softmax of
// the logits:
//
//   loss[b] = -log(sum over alignments of the product over t of P[t, b, alignment[t]])
//
// The sum is taken by the recursion over prefixes (alpha) and suffixes (beta), as logarithms, in double. The logits may
// be logarithms of probabilities, whose softmax these are.
//
// dlogits[t, b, c] = (P[t, b, c] - share of the alignments that are at c at t) dloss[b], and 0 behind the input's end.
// It computes all again from the logits. Its derivative along a direction, which is the Hessian times that, runs the
// same recursion on numbers that have derivatives. Third derivatives are refused.
#include "operators/loss/ctc_loss.h"

#include <algorithm>
#include <vector>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loss/alignment_derivatives.h"

namespace stepnet::cpu_ctc_loss {
namespace {

// The inputs of a call whose first four are those of the loss, checked.
template <class T>
struct Batch {
  CtcSizes sizes;
  Wholes labels, times, lengths;
  int64_t blank;

  Batch(const CtcArgs& a, const Call& call)
      : sizes(CtcSizes::of(call)),
        labels(wholes(call.in(1))),
        times(wholes(call.in(2))),
        lengths(wholes(call.in(3))),
        blank(a.blank) {
    check_sample_lengths("input_lengths", times, sizes.samples, 0, sizes.times);
    check_sample_lengths("target_lengths", lengths, sizes.samples, 0, sizes.places);
    check_sample_labels(labels, lengths, sizes.samples, sizes.places, sizes.classes, blank);
  }

  int64_t stride() const { return sizes.samples * sizes.classes; }

  // With the logarithms of its sums, which are written to `log_sums`.
  template <class N>
  CtcSample<N, T> sample(int64_t b, Scores<N, T> scores, std::vector<N>& log_sums) const {
    log_sums.resize(static_cast<size_t>(times[b]));
    const Scores<N, T> own = scores.from(b * sizes.classes);
    for (int64_t t = 0; t < times[b]; ++t) log_sums[t] = own.from(t * stride()).log_sum_of(sizes.classes);
    return {own, stride(), log_sums.data(), 1, labels, b * sizes.places, blank, times[b], lengths[b]};
  }

  // Calls fn(first, last) on ranges of samples, from several threads.
  template <class Fn>
  void each_range(double passes, Fn fn) const {
    const double cells = static_cast<double>(sizes.states()) * 30 + static_cast<double>(sizes.classes) * 10;
    parallel_for(sizes.samples, 1 + passes * cells * static_cast<double>(sizes.times), fn);
  }
};

template <class N, class T>
void alphas_of(const CtcSample<N, T>& sample, int64_t rows, std::vector<N>& alphas) {
  const int64_t states = sample.states();
  alphas.resize(static_cast<size_t>(rows * states));
  for (int64_t s = 0; s < states; ++s) alphas[s] = sample.before_all(s);
  for (int64_t t = 0; t < sample.times; ++t) {
    const N* const before = alphas.data() + t % rows * states;
    N* const row = alphas.data() + (t + 1) % rows * states;
    for (int64_t s = 0; s < states; ++s) row[s] = sample.alpha(t, s, before);
  }
}

template <class T>
void forward(const CtcArgs& a, In<T> x, const Tensor&, const Tensor&, const Tensor&, Out<T> loss, Call& call) {
  const Batch<T> batch(a, call);
  std::vector<double> losses(static_cast<size_t>(batch.sizes.samples));
  batch.each_range(1, [&](int64_t begin, int64_t end) {
    std::vector<double> log_sums, alphas;
    for (int64_t b = begin; b < end; ++b) {
      const auto sample = batch.sample(b, Scores<double, T>{x.data()}, log_sums);
      alphas_of(sample, 2, alphas);
      const double total = sample.total(alphas.data() + sample.times % 2 * sample.states());
      losses[b] = is_impossible(total) && a.zero_infinity ? 0 : 0 - total;
    }
  });
  const LossReduction reduction = loss_reduction(a.reduction);
  if (reduction == LossReduction::none) {
    std::ranges::transform(losses, loss.begin(), [](double l) { return static_cast<T>(l); });
    return;
  }
  double sum = 0;
  for (int64_t b = 0; b < batch.sizes.samples; ++b) sum += ctc_part(reduction, losses[b], batch.lengths[b]);
  const bool mean = reduction == LossReduction::mean && batch.sizes.samples > 0;
  loss[0] = static_cast<T>(mean ? sum / static_cast<double>(batch.sizes.samples) : sum);
}

// The memory that samples are worked on in, one after the other.
template <class N>
struct Room {
  std::vector<N> log_sums, alphas, beta, after, shares;
};

// Writes the gradient of a sample's loss times `factor`, or the derivative of that.
template <class N, class T>
void sample_gradient(const CtcSample<N, T>& sample, int64_t classes, double factor, Room<N>& room, T* y) {
  const int64_t states = sample.states();
  const N total = sample.total(room.alphas.data() + sample.times * states);
  room.beta.resize(static_cast<size_t>(states));
  room.after.resize(static_cast<size_t>(states));
  for (int64_t s = 0; s < states; ++s) room.after[s] = sample.after_all(s);
  for (int64_t t = sample.times - 1; t >= 0; --t) {
    room.shares.assign(static_cast<size_t>(classes), N{0});
    const N* const alpha = room.alphas.data() + (t + 1) * states;
    for (int64_t s = 0; s < states; ++s) {
      room.beta[s] = sample.beta(s, room.after.data());
      N& share = room.shares[sample.label(s)];
      share = share + exp_of(alpha[s] + room.beta[s] - total);
    }
    for (int64_t s = 0; s < states; ++s) room.after[s] = room.beta[s] + sample.log_p(t, s);
    for (int64_t c = 0; c < classes; ++c)
      y[t * sample.stride + c] = static_cast<T>(factor * result_of(exp_of(sample.log_share(t, c)) - room.shares[c]));
  }
}

template <class N, class T>
void gradients(const CtcArgs& a, Scores<N, T> scores, In<T> dloss, Out<T> y, Call& call) {
  const Batch<T> batch(a, call);
  const CtcSizes& sizes = batch.sizes;
  const LossReduction reduction = loss_reduction(a.reduction);
  std::ranges::fill(y, T(0));
  batch.each_range(std::is_same_v<N, Dual> ? 5 : 3, [&](int64_t begin, int64_t end) {
    Room<N> room;
    for (int64_t b = begin; b < end; ++b) {
      const auto sample = batch.sample(b, scores, room.log_sums);
      alphas_of(sample, sample.times + 1, room.alphas);
      const double of_loss = static_cast<double>(dloss[reduction == LossReduction::none ? b : 0]);
      double factor = ctc_factor(reduction, of_loss, sizes.samples, sample.length);
      if (is_impossible(value_of(sample.total(room.alphas.data() + sample.times * sample.states())))) {
        if (a.zero_infinity) continue;
        factor = std::numeric_limits<double>::quiet_NaN();  // the loss is infinite
      }
      sample_gradient(sample, sizes.classes, factor, room, y.data() + b * sizes.classes);
    }
  });
}

template <class T>
void gradient(const CtcArgs& a, In<T> x, const Tensor&, const Tensor&, const Tensor&, In<T> dloss, Out<T> dx,
              Call& call) {
  gradients(a, Scores<double, T>{x.data()}, dloss, dx, call);
}

template <class T>
void hessian(const CtcArgs& a, In<T> x, const Tensor&, const Tensor&, const Tensor&, In<T> dloss, In<T> v, Out<T> y,
             Call& call) {
  gradients(a, Scores<Dual, T>{x.data(), v.data()}, dloss, y, call);
}

// Of the four inputs of the loss; returns the shape of its output, if that is known.
void check_inputs(const CtcArgs& a, const ShapeCall& c) {
  if (!c.known(0)) return;
  const Shape& x = c.shape(0);
  require(x.rank() == 3 && x[2] > 0, "logits is {}, but must be [T, B, C], with a class at least", x);
  require(a.blank >= 0 && a.blank < x[2], "the blank is {}, but logits {} have classes 0..{}", a.blank, x, x[2] - 1);
  if (c.known(1))
    require(c.shape(1).rank() == 2 && c.shape(1)[0] == x[1], "targets is {}, but must be [B, S] with B = {}",
            c.shape(1), x[1]);
  for (const auto& [i, name] : {std::pair{2, "input_lengths"}, {3, "target_lengths"}})
    if (c.known(i)) require(c.shape(i) == Shape{x[1]}, "{} is {}, but must be [{}]", name, c.shape(i), x[1]);
}

void infer(const CtcArgs& a, ShapeCall& c) {
  check_inputs(a, c);
  if (c.known(0)) c.set(0, c.dtype(0), reduced_shape(a.reduction, c.shape(0)[1]));
}

void infer_gradient(const CtcArgs& a, ShapeCall& c) {
  check_inputs(a, c);
  if (c.known(0) && c.known(4)) {
    const Shape loss = reduced_shape(a.reduction, c.shape(0)[1]);
    require(c.shape(4).size() == loss.size(), "dloss is {}, but the loss {}", c.shape(4), loss);
  }
  if (c.known(0) && c.known(5)) require(c.shape(5) == c.shape(0), "V is {}, but logits {}", c.shape(5), c.shape(0));
  c.set_like(0, 0);
}

// Operations: of a timestep's logarithm of a sum, for each class and once; of a state in each recursion and in what is
// made of both; of a class of the result; and of a sample.
struct Costs {
  double term, log_sum, alpha, beta, share, result, sample;
};

double all_flops(const ShapeCall& c, const Costs& costs) {
  if (!c.known(0) || !c.known(1)) return 0;
  const auto samples = static_cast<double>(c.shape(0)[1]), states = 2 * static_cast<double>(c.shape(1)[1]) + 1;
  const auto classes = static_cast<double>(c.shape(0)[2]);
  const double of_row = classes * (costs.term + costs.result) + costs.log_sum;
  const double of_states = states * (costs.alpha + costs.beta + costs.share);
  return samples * (static_cast<double>(c.shape(0)[0]) * (of_row + of_states) + costs.sample);
}

double flops(const CtcArgs& a, const ShapeCall& c) {
  const bool mean = a.reduction == "mean", sums = a.reduction != "none";
  const double once = mean && c.known(0) && c.shape(0)[1] > 0 ? 1 : 0;
  return all_flops(c, {3, 2, 13, 0, 0, 0, 8.0 + int{mean} + int{sums}}) + once;
}

double gradient_flops(const CtcArgs& a, const ShapeCall& c) {
  return all_flops(c, {3, 2, 13, 13, 4, 4, a.reduction == "mean" ? 10.0 : 8.0});
}

double hessian_flops(const CtcArgs& a, const ShapeCall& c) {
  return all_flops(c, {5, 3, 22, 22, 8, 7, a.reduction == "mean" ? 15.0 : 13.0});
}

// Sums' logarithms, all alphas, and three rows of states.
template <class N>
std::vector<int64_t> gpu_workspace(const CtcArgs&, const Call& call) {
  const CtcSizes s = CtcSizes::of(call);
  const int64_t number = sizeof(N);
  return {number * s.times * s.samples, number * s.samples * (s.times + 1) * s.states(),
          number * s.samples * 3 * s.states()};
}

std::vector<int64_t> gpu_forward_workspace(const CtcArgs&, const Call& call) {
  const CtcSizes s = CtcSizes::of(call);
  const int64_t number = sizeof(double);
  return {number * s.times * s.samples, number * s.samples * 2 * s.states(), number * s.samples};
}

OpBuilder<CtcArgs>& declare(OpBuilder<CtcArgs>& b) {
  return b.own()
      .arg("blank", &CtcArgs::blank, int64_t{0}, "the class that stands for no label", at_least(0))
      .arg("zero_infinity", &CtcArgs::zero_infinity, false,
           "a sample that no alignment fits, whose loss is infinite, has a loss and a gradient of 0")
      .arg("reduction", &CtcArgs::reduction, std::string("mean"),
           "mean: each loss divided by the number of labels, or by 1, and then the mean; sum; or none",
           one_of({"mean", "sum", "none"}))
      .input("logits", "[T, B, C], scores of C classes for B samples; or logarithms of probabilities")
      .input("targets", "[B, S], labels of each sample; those behind target_lengths are not read")
      .types({DType::int32, DType::int64})
      .input("input_lengths", "[B], how many timesteps of each sample count, from 0 to T")
      .types({DType::int32, DType::int64})
      .input("target_lengths", "[B], how many labels of each sample count, from 0 to S")
      .types({DType::int32, DType::int64});
}

const AlignmentLoss& alignment_loss() {
  static const AlignmentLoss loss{"CTCLoss", {"logits", "targets", "input_lengths", "target_lengths"}, {0, 2}};
  return loss;
}

bool is_each(Formula& f) { return f.args<CtcArgs>().reduction == "none"; }

REGISTER(ctc_loss) {
  OpBuilder<CtcArgs> b("CTCLoss");
  return declare(b)
      .doc(
          "Connectionist temporal classification: the negative logarithm of the probability of labels, summed over all "
          "ways in which timesteps may be aligned with them. It is infinite where there is none.")
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
                    return f.op("CTCLossGradient", inputs, f.forward_args());
                  })
      .example({"logits=5,2,4", "targets=int32,2,2:1,2,3,3", "input_lengths=int32,2:5,4", "target_lengths=int32,2:2,2"})
      .example({"logits=4,3,3", "targets=int64,3,2:1,0,0,1,9,9", "input_lengths=int64,3:4,2,3",
                "target_lengths=int64,3:2,1,0"},
               {"blank=2", "reduction=none"})
      .example({"logits=3,2,3", "targets=int32,2,2:1,1,2,1", "input_lengths=int32,2:2,3", "target_lengths=int32,2:2,2"},
               {"zero_infinity=true", "reduction=sum"})
      .example({"logits=0,1,2", "targets=int32,1,0", "input_lengths=int32,1:0", "target_lengths=int32,1:0"})
      .example({"logits=2,0,2", "targets=int32,0,1", "input_lengths=int32,0", "target_lengths=int32,0"});
}

REGISTER(ctc_loss_gradient) {
  OpBuilder<CtcArgs> b("CTCLossGradient");
  return declare(b)
      .doc("Gradient of CTCLoss.")
      .input("dloss", "gradient of its loss")
      .output("dlogits", "like logits")
      .shape(infer_gradient)
      .flops(gradient_flops)
      .gpu_workspace(gpu_workspace<double>)
      .cpu(gradient<float>, gradient<double>)
      .derivative("logits", [](Formula& f) { return alignment_loss().times_hessian(f, f.dy("dlogits")); })
      .derivative("dloss", [](Formula& f) { return alignment_loss().by_dloss(f, is_each(f), {}, f.dy("dlogits")); });
}

REGISTER(ctc_loss_hessian) {
  OpBuilder<CtcArgs> b("CTCLossHessian");
  return declare(b)
      .doc("The Hessian of CTCLoss with respect to the logits, times V. It has no derivative by the logits.")
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
}  // namespace stepnet::cpu_ctc_loss
