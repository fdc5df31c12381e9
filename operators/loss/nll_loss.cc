// CrossEntropyLoss and NLLLoss, as PyTorch's cross_entropy and nll_loss define them for labels, but for a mean over
// nothing, which is 0 here. X is [N, C, ...]; with a label y for each place n beside the classes, a weight w of each
// class, and a smoothing e,
//
//   loss[n] = sum over c of q[n, c] (-log P[n, c]),  q[n, c] = w[c] ((1 - e) [c = y] + e / C)
//
// where P is the softmax of X along the classes, or, of NLLLoss, X is log P. A place with the label ignore_index has a
// loss of 0. The mean is sum(loss) / sum(w[y]), over the places that are not ignored.
//
// With what arrives at each loss, f[n], NLLLoss has dX = -f q and CrossEntropyLoss dX = f (P sum(q) - q). The first
// reads no X, the second computes P again from it. Both are linear in f; their derivatives follow from NLLLoss and its
// gradient. Weights have no derivative.
#include "operators/loss/nll_loss.h"

#include <algorithm>
#include <cmath>

#include "core/compute/vector_math.h"
#include "core/operator/flops.h"
#include "operators/loops/composing.h"

namespace stepnet::cpu_nll_loss {
namespace {

template <class T>
NllTargets<T> checked_targets(const NllArgs& a, const Call& call, In<T> weights) {
  const NllTargets<T> targets(a, class_lines(call.in(0).shape()), wholes(call.in(1)),
                              weights.empty() ? nullptr : weights.data());
  const OneAxis& lines = targets.lines;
  for (int64_t n = 0; n < lines.lines(); ++n)
    if (targets.labels[n] != targets.ignored && !targets.is_class(n))
      fail("the label of sample {}{} is {}, but must be in 0..{}, or {}, which is ignored", n / lines.inner,
           lines.inner > 1 ? fmt::format(", place {},", n % lines.inner) : "", targets.labels[n], lines.size - 1,
           targets.ignored);
  return targets;
}

// exp(x - most) of a line, and their sum.
template <class T>
struct Exponentials {
  std::span<T> each;
  double most, sum;

  Exponentials(const OneAxis& lines, const T* x)
      : each(thread_buffer<T>(ThreadBuffer::line, static_cast<size_t>(lines.size))) {
    for (int64_t j = 0; j < lines.size; ++j) each[j] = x[j * lines.inner];
    const T greatest = vec_max(In<T>(each));
    for (T& e : each) e -= greatest;
    vec_exp(In<T>(each), each);
    most = static_cast<double>(greatest);
    sum = vec_sum(In<T>(each));
  }
};

template <bool kSoftmax, class T>
double line_loss(const NllTargets<T>& targets, int64_t n, const T* x) {
  if (!targets.counts(n)) return 0;
  const int64_t inner = targets.lines.inner, label = targets.labels[n];
  double log_sum = 0;
  if constexpr (kSoftmax) {
    const Exponentials<T> line(targets.lines, x);
    log_sum = line.most + std::log(line.sum);
  }
  const double loss = targets.weight(label) * (log_sum - static_cast<double>(x[label * inner]));
  if (targets.spread == 0) return loss;
  double sum = 0;
  for (int64_t c = 0; c < targets.lines.size; ++c)
    sum += targets.weight(c) * (log_sum - static_cast<double>(x[c * inner]));
  return targets.share * loss + targets.spread * sum;
}

// In a fixed order, whatever the number of threads.
template <class T>
double total_count(const NllTargets<T>& targets) {
  double sum = 0;
  for (int64_t n = 0; n < targets.lines.lines(); ++n) sum += targets.count(n);
  return sum;
}

template <class T, bool kSoftmax>
void forward(const NllArgs& a, In<T> x, const Tensor&, In<T> weights, Out<T> loss, Call& call) {
  const NllTargets<T> targets = checked_targets(a, call, weights);
  const LossReduction reduction = loss_reduction(a.reduction);
  const auto count = static_cast<size_t>(targets.lines.lines());
  const auto losses = thread_buffer<double>(ThreadBuffer::lines, count);
  targets.lines.each_line(kSoftmax ? 2.0 : 0.1, [&](int64_t n, int64_t first) {
    losses[n] = line_loss<kSoftmax>(targets, n, x.data() + first);
  });
  if (reduction == LossReduction::none) {
    std::ranges::transform(losses, loss.begin(), [](double l) { return static_cast<T>(l); });
    return;
  }
  double sum = 0;
  for (const double l : losses) sum += l;
  const double total = reduction == LossReduction::mean ? total_count(targets) : 1;
  loss[0] = static_cast<T>(total != 0 ? sum / total : 0);
}

// The gradient of a line's loss times `factor`. `total` is the sum of all weights.
template <bool kSoftmax, class T>
void line_gradient(const NllTargets<T>& targets, int64_t n, double factor, double total, const T* x, T* dx) {
  const int64_t inner = targets.lines.inner, label = targets.labels[n];
  const double of_label = factor * targets.share * targets.weight(label), of_all = factor * targets.spread;
  if constexpr (kSoftmax) {
    const Exponentials<T> line(targets.lines, x);
    const double scale = (of_label + of_all * total) / line.sum;
    for (int64_t c = 0; c < targets.lines.size; ++c)
      dx[c * inner] = static_cast<T>(scale * static_cast<double>(line.each[c]) - of_all * targets.weight(c));
  } else {
    for (int64_t c = 0; c < targets.lines.size; ++c) dx[c * inner] = static_cast<T>(-of_all * targets.weight(c));
  }
  dx[label * inner] -= static_cast<T>(of_label);
}

template <class T, bool kSoftmax>
void gradients(const NllArgs& a, const T* x, In<T> dloss, In<T> weights, Out<T> dx, Call& call) {
  const NllTargets<T> targets = checked_targets(a, call, weights);
  const LossReduction reduction = loss_reduction(a.reduction);
  double share = reduction == LossReduction::mean ? total_count(targets) : 1, total = 0;
  if (share != 0) share = 1 / share;
  for (int64_t c = 0; c < targets.lines.size; ++c) total += targets.weight(c);
  targets.lines.each_line(kSoftmax ? 2.0 : 0.2, [&](int64_t n, int64_t first) {
    if (!targets.counts(n)) {
      for (int64_t c = 0; c < targets.lines.size; ++c) dx[first + c * targets.lines.inner] = T(0);
      return;
    }
    const double factor = share * static_cast<double>(dloss[reduction == LossReduction::none ? n : 0]);
    line_gradient<kSoftmax>(targets, n, factor, total, kSoftmax ? x + first : nullptr, dx.data() + first);
  });
}

template <class T>
void nll_gradient(const NllArgs& a, const Tensor&, const Tensor&, In<T> dloss, In<T> weights, Out<T> dx, Call& call) {
  gradients<T, false>(a, nullptr, dloss, weights, dx, call);
}

template <class T>
void cross_entropy_gradient(const NllArgs& a, In<T> x, const Tensor&, In<T> dloss, In<T> weights, Out<T> dx,
                            Call& call) {
  gradients<T, true>(a, x.data(), dloss, weights, dx, call);
}

// Of X, T and, if it is there, weight.
void check_inputs(const ShapeCall& c, int weight) {
  if (!c.known(0)) return;
  const Shape& x = c.shape(0);
  require(x.rank() >= 2 && x[1] > 0, "X is {}, but must be [N, C, ...], with a class at least", x);
  if (c.known(1)) {
    const Shape& t = c.shape(1);
    const bool fits = t.rank() == x.rank() - 1 && t[0] == x[0] && t.from(1) == x.from(2);
    require(fits, "T is {}, but X {} needs a label for each place beside its classes", t, x);
  }
  if (c.known(weight))
    require(c.shape(weight) == Shape{x[1]}, "weight is {}, but X {} has {} classes", c.shape(weight), x, x[1]);
}

void infer(const NllArgs& a, ShapeCall& c) {
  check_inputs(c, 2);
  if (!c.known(0)) return;
  if (a.reduction != "none")
    c.set(0, c.dtype(0), Shape{});
  else if (c.known(1))
    c.set(0, c.dtype(0), c.shape(1));
}

void infer_gradient(const NllArgs& a, ShapeCall& c) {
  check_inputs(c, 3);
  if (c.known(1) && c.known(2)) {
    const Shape loss = a.reduction == "none" ? c.shape(1) : Shape{};
    require(c.shape(2).size() == loss.size(), "dloss is {}, but the loss {}", c.shape(2), loss);
  }
  c.set_like(0, 0);
}

// What FLOPs follow from, as numbers.
struct Counts {
  double lines = 0, classes = 0;
  int smooth = 0, weighted = 0, mean = 0, sums = 0;

  Counts(const NllArgs& a, const ShapeCall& c, int weight)
      : smooth(int{a.label_smoothing != 0}),
        weighted(int{c.has(weight)}),
        mean(int{a.reduction == "mean"}),
        sums(int{a.reduction != "none"}) {
    if (!c.known(0) || c.shape(0).rank() < 2) return;
    lines = static_cast<double>(class_lines(c.shape(0)).lines());
    classes = static_cast<double>(c.shape(0)[1]);
  }
};

double flops(const NllArgs& a, const ShapeCall& c, bool softmax) {
  const Counts k(a, c, 2);
  const int difference = int{softmax};
  double line = (softmax ? 3 * k.classes + 2 : 0) + difference + k.weighted;
  if (k.smooth != 0) line += k.classes * (difference + k.weighted + 1) + 3;
  return k.lines * (line + k.sums + k.mean * k.weighted) + k.mean;
}

double gradient_flops(const NllArgs& a, const ShapeCall& c, bool softmax) {
  const Counts k(a, c, 3);
  double line = k.weighted + k.mean * k.weighted + k.mean, once = k.mean;
  if (softmax) line += 4 * k.classes + 2;
  if (k.smooth != 0) {
    line += 2 + k.weighted * k.classes + (softmax ? k.classes + 2 : 1);
    once += softmax ? k.weighted * k.classes : 0;
  }
  return k.lines * line + once;
}

std::vector<int64_t> gpu_workspace(const NllArgs& a, const Call& call) {
  if (a.reduction == "none") return {};
  const int64_t number = sizeof(double);
  return {number * class_lines(call.in(0).shape()).lines(), 2 * number};
}

std::vector<int64_t> gpu_gradient_workspace(const NllArgs&, const Call&) { return {2 * sizeof(double)}; }

ArgCheck<float> share() {
  return [](const float& v) { return v >= 0 && v <= 1 ? "" : "must be from 0 to 1"; };
}

OpBuilder<NllArgs>& declare_args(OpBuilder<NllArgs>& b) {
  return b.own()
      .arg("ignore_index", &NllArgs::ignore_index, int64_t{-100},
           "the label of places that count neither in the loss nor in the mean")
      .arg("label_smoothing", &NllArgs::label_smoothing, 0.0F, "how much of each label is spread over all classes",
           share())
      .arg("reduction", &NllArgs::reduction, std::string("mean"),
           "mean: the sum of the losses by that of the labels' weights, 0 if this is 0; sum; or none",
           one_of({"mean", "sum", "none"}));
}

OpBuilder<NllArgs>& declare_labels(OpBuilder<NllArgs>& b) {
  return b.input("T", "[N, ...], labels from 0 to C - 1, or ignore_index").types({DType::int32, DType::int64});
}

OpBuilder<NllArgs>& declare(OpBuilder<NllArgs>& b, const char* what_x_is) {
  return declare_labels(declare_args(b).input("X", what_x_is));
}

OpBuilder<NllArgs>& declare_weight(OpBuilder<NllArgs>& b) {
  return b.input("weight", "[C], of each class; ones if left out").optional();
}

OpBuilder<NllArgs>& declare_loss(OpBuilder<NllArgs>& b) {
  return declare_weight(b)
      .output("loss", "a scalar, or like T with the reduction none")
      .shape(infer)
      .gpu_workspace(gpu_workspace)
      .precision(Precision::float32)
      .example({"X=3,4", "T=int32,3:2,0,3"})
      .example({"X=3,4", "T=int64,3:2,-100,3", "weight=4,0.5..2"}, {"label_smoothing=0.25"})
      .example({"X=2,3,2", "T=int32,2,2:2,0,-1,1", "weight=3,0.5..2"}, {"ignore_index=-1", "reduction=none"})
      .example({"X=2,3", "T=int32,2:1,2"}, {"label_smoothing=0.5", "reduction=sum"})
      .example({"X=1,2,2,1", "T=int64,1,2,1:0,0"}, {"ignore_index=0"})
      .example({"X=0,3", "T=int32,0"});
}

OpBuilder<NllArgs>& declare_gradient(OpBuilder<NllArgs>& b) {
  b.input("dloss", "gradient of the loss");
  return declare_weight(b).output("dX", "like X").shape(infer_gradient).gpu_workspace(gpu_gradient_workspace);
}

std::vector<Value> with_weight(Formula& f, std::vector<Value> inputs) {
  if (f.has_x("weight")) inputs.push_back(f.x("weight"));
  return inputs;
}

Gradient loss_derivative(Formula& f, const char* gradient) {
  return f.op(gradient, with_weight(f, {f.x("X"), f.x("T"), f.dy("loss")}), f.forward_args());
}

// Of a gradient <-f q, v>, with respect to f.
Value by_dloss(Formula& f, Value v) {
  return composing::reshaped(f, f.op("NLLLoss", with_weight(f, {v, f.x("T")}), f.forward_args()), f.x("dloss"));
}

// What the second derivatives of CrossEntropyLoss are made of: P, and u less its mean by P in each line.
struct Spread {
  Value p, v;

  Spread(Formula& f, Value u) {
    using composing::like_first, composing::laid_over, composing::map, composing::mul;
    const auto over_classes = [&](const char* type, Value of) {
      return f.op(type, {of}, {make_arg("axes", std::vector<int64_t>{1})});
    };
    const Value x = f.x("X"), most = f.op("StopGradient", {over_classes("ReduceMax", x)});
    const Value each = map(f, "Exp", like_first(f, "Sub", x, most, laid_over()));
    p = like_first(f, "Div", each, over_classes("ReduceSum", each), laid_over());
    v = like_first(f, "Sub", u, over_classes("ReduceSum", mul(f, p, u)), laid_over());
  }
};

// With S = sum(f q) in a line, <f (P sum(q) - q), u> has the gradient S P v with respect to X.
Value by_scores(Formula& f) {
  const Value u = f.dy("dX");
  const Spread spread(f, u);
  const Value g = f.same_shape(
      f.op("NLLLossGradient", with_weight(f, {f.x("X"), f.x("T"), f.x("dloss")}), f.forward_args()), f.x("X"));
  const Value sums = f.op("ReduceSum", {composing::negative(f, g)}, {make_arg("axes", std::vector<int64_t>{1})});
  return composing::like_first(f, "Mul", composing::mul(f, spread.p, spread.v), sums, composing::laid_over());
}

REGISTER(nll_loss) {
  OpBuilder<NllArgs> b("NLLLoss");
  declare(b, "[N, C, ...], logarithms of probabilities of C classes")
      .doc(
          "The negative logarithm of the probability of labels, with weights of classes, labels that are ignored and "
          "label smoothing.");
  return declare_loss(b)
      .flops([](const NllArgs& a, const ShapeCall& c) { return flops(a, c, false); })
      .cpu(forward<float, false>, forward<double, false>)
      .derivative("X", [](Formula& f) { return loss_derivative(f, "NLLLossGradient"); });
}

REGISTER(nll_loss_gradient) {
  OpBuilder<NllArgs> b("NLLLossGradient");
  declare_labels(declare_args(b).input("X", "NLLLoss's logarithms, of which the shape is read").shape_only());
  return declare_gradient(b)
      .doc("Gradient of NLLLoss.")
      .flops([](const NllArgs& a, const ShapeCall& c) { return gradient_flops(a, c, false); })
      .cpu(nll_gradient<float>, nll_gradient<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("dloss", [](Formula& f) { return by_dloss(f, f.dy("dX")); });
}

REGISTER(cross_entropy_loss) {
  OpBuilder<NllArgs> b("CrossEntropyLoss");
  declare(b, "[N, C, ...], scores of C classes")
      .doc(
          "Softmax of scores along dimension 1 and the cross entropy of labels, with weights of classes, labels that "
          "are ignored and label smoothing.");
  return declare_loss(b)
      .flops([](const NllArgs& a, const ShapeCall& c) { return flops(a, c, true); })
      .cpu(forward<float, true>, forward<double, true>)
      .derivative("X", [](Formula& f) { return loss_derivative(f, "CrossEntropyLossGradient"); });
}

REGISTER(cross_entropy_loss_gradient) {
  OpBuilder<NllArgs> b("CrossEntropyLossGradient");
  declare(b, "CrossEntropyLoss's scores");
  return declare_gradient(b)
      .doc("Gradient of CrossEntropyLoss.")
      .flops([](const NllArgs& a, const ShapeCall& c) { return gradient_flops(a, c, true); })
      .cpu(cross_entropy_gradient<float>, cross_entropy_gradient<double>)
      .derivative("X", [](Formula& f) { return by_scores(f); })
      .derivative("dloss", [](Formula& f) { return by_dloss(f, Spread(f, f.dy("dX")).v); });
}

}  // namespace
}  // namespace stepnet::cpu_nll_loss
