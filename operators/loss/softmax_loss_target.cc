// Gradients of SoftmaxWithLoss and SpatialSoftmaxWithLoss through their loss with respect to the targets and weights.
// Args say which loss it was; names are those of softmax_with_loss.cc.
//
// With e[n, j] = -log P[n, j], W = sum(w), c = scale dloss / W, and means over rows weighted by w:
//   dT = c w e,  dw = c (l - mean(l)).
// All is 0 if W is 0. Only dw reads T. Their derivatives follow from the formulas.

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loss/softmax_loss_body.h"

namespace stepnet::cpu_softmax_loss_target {
namespace {

// What the kernels share: the loss's factor for rows and its inputs.
template <class T>
struct LossContext {
  OneAxis lines;
  LossTargets<T> targets;
  double total, scale, by_total, factor;  // W, scale, 1 / W, c

  LossContext(const LossArgs& a, const Shape& x, const Tensor& target, In<T> weights, T dloss)
      : lines(loss_lines(a, x)),
        targets(a, lines, target, weights),
        total(targets.weight_sum()),
        scale(static_cast<double>(a.scale)),
        by_total(total != 0 ? 1 / total : 0),
        factor(scale * static_cast<double>(dloss) * by_total) {}

  size_t count() const { return static_cast<size_t>(lines.lines()); }
};

// log(sum(exp(x))) of a line.
template <class T>
double log_sum(const OneAxis& lines, const T* x) {
  double most = static_cast<double>(x[0]), sum = 0;
  for (int64_t j = 1; j < lines.size; ++j) most = std::max(most, static_cast<double>(x[j * lines.inner]));
  for (int64_t j = 0; j < lines.size; ++j) sum += std::exp(static_cast<double>(x[j * lines.inner]) - most);
  return most + std::log(sum);
}

// For each line log(sum(exp(x))) and, if that is asked for, its loss.
template <class T>
struct LineLosses {
  std::vector<double> log_sums, losses;

  LineLosses(const LossContext<T>& context, In<T> x, bool wants_losses)
      : log_sums(context.count()), losses(context.count()) {
    const OneAxis& lines = context.lines;
    if (lines.size == 0) return;
    lines.each_line(10.0, [&](int64_t n, int64_t first) {
      log_sums[n] = log_sum(lines, x.data() + first);
      if (!wants_losses) return;
      double loss = 0;
      for (int64_t j = 0; j < lines.size; ++j)
        if (const double share = context.targets.share(n, j); share != 0)
          loss += share * (log_sums[n] - static_cast<double>(x[first + j * lines.inner]));
      losses[n] = loss;
    });
  }
};

template <class T>
void gradient(const LossArgs& a, In<T> x, const Tensor& target, In<T> dloss, In<T> weights, Out<T> dt, Out<T> dw,
              Call& call) {
  const LossContext<T> context(a, call.in(0).shape(), target, weights, dloss[0]);
  const LineLosses<T> each(context, x, !dw.empty());
  const double mean = context.targets.mean(each.losses);
  context.lines.each_line(1.0, [&](int64_t n, int64_t first) {
    const bool ignored = context.targets.ignored(n);
    if (!dw.empty()) dw[n] = ignored ? T(0) : static_cast<T>(context.factor * (each.losses[n] - mean));
    if (dt.empty()) return;
    const double factor = context.factor * context.targets.weight(n);
    for (int64_t j = 0, at = first; j < context.lines.size; ++j, at += context.lines.inner)
      dt[at] = static_cast<T>(factor * (each.log_sums[n] - static_cast<double>(x[at])));
  });
}

// Input 0 has the shape of X; 1 is T, 2 dloss, and `weights` the weights.
void check_inputs(const LossArgs& a, const ShapeCall& c, int weights) {
  if (c.known(0)) check_targets(a, c, c.shape(0), c.dtype(0), 1, weights);
  if (c.known(2)) require(c.shape(2).size() == 1, "dloss must be one number, but is {}", c.shape(2));
}

void infer(const LossArgs& a, ShapeCall& c) {
  check_inputs(a, c, 3);
  c.set_like(0, 1);
  c.set_like(1, 3);
}

constexpr std::initializer_list<DType> kTargetTypes = {DType::int32,   DType::int64,   DType::float32,
                                                       DType::float64, DType::float16, DType::bfloat16};

// The arguments and the first three inputs.
OpBuilder<LossArgs>& declare(OpBuilder<LossArgs>& builder, const char* first, const char* what_first_is) {
  return builder.arg("label_prob", &LossArgs::label_prob, false, "as the loss's")
      .arg("scale", &LossArgs::scale, 1.0F, "as the loss's")
      .arg("axis", &LossArgs::axis, 1, "as the loss's")
      .arg("spatial", &LossArgs::spatial, false, "the loss is SpatialSoftmaxWithLoss")
      .input(first, what_first_is)
      .input("T", "its labels or distributions")
      .types(kTargetTypes)
      .input("dloss", "gradient of the loss");
}

OpBuilder<LossArgs>& declare_weights(OpBuilder<LossArgs>& builder) {
  return builder.input("weights", "the loss's weights; ones if left out").optional();
}

// -log of the softmax of each line.
Value surprises(const composing::LossBody& b) {
  using composing::map, composing::negative;
  if (!b.a.spatial) return negative(b.f, map(b.f, "LogSoftmax", b.scores, {make_arg("axis", 1)}));
  const Value most = b.f.op("ReduceMax", {b.scores}, {make_arg("axes", std::vector<int64_t>{1})});
  const Value shifted = b.less(b.scores, b.f.op("StopGradient", {most}));  // which changes nothing but sizes
  const Value log_sum = b.f.op("Log", {b.line_sums(map(b.f, "Exp", shifted))});
  return negative(b.f, b.less(shifted, log_sum));
}

std::vector<Value> body(Formula& f) {
  using composing::LossBody, composing::mul, composing::reshaped;
  const auto& a = f.args<LossArgs>();
  const bool weighted = f.has_x("weights");
  const LossBody b(f, a, f.x("X"), f.x("T"), weighted ? f.x("weights") : Value(), f.x("dloss"));
  const Value surprise = surprises(b);
  Value of_target, of_weights;
  if (a.label_prob) of_target = reshaped(f, b.times(surprise, b.times(b.weights, b.factor)), f.x("T"));
  if (weighted) {
    const Value losses = f.same_shape(b.line_sums(mul(f, b.shares, surprise)), b.weights);
    const Value mean = mul(f, f.op("SumElements", {mul(f, b.weights, losses)}), b.by_total);
    Value slope = b.times(b.less(losses, mean), b.factor);
    if (b.counts.defined()) slope = mul(f, slope, b.counts);
    of_weights = reshaped(f, slope, f.x("weights"));
  }
  return {of_target, of_weights};
}

// Whole, whatever is wanted: so many for each class, for each line, for each weight that is there, and once.
struct LossFlops {
  double each, line, weight, once;
};

double flops(const LossArgs& a, const ShapeCall& c, int weights, const LossFlops& f) {
  if (!c.known(0)) return 0;
  const auto lines = static_cast<double>(loss_lines(a, c.shape(0)).lines());
  return f.each * input_size(c, 0) + lines * (f.line + (c.has(weights) ? f.weight : 0)) + f.once;
}

REGISTER(softmax_loss_target_gradient) {
  auto builder = op<LossArgs>("SoftmaxLossTargetGradient");
  builder.own();
  builder.doc("Gradients of SoftmaxWithLoss through its loss with respect to distributions and weights.");
  return declare_weights(declare(builder, "X", "the loss's scores"))
      .output("dT", "like T, if these are distributions")
      .types({DType::float32, DType::float64})
      .optional()
      .uses({"X", "dloss", "weights"})
      .output("dweights", "like weights, which must be there")
      .optional()
      .shape(infer)
      .flops([](const LossArgs& a, const ShapeCall& c) {
        return flops(a, c, 3, {8, 5, 3, 3});
      })
      .cpu(gradient<float>, gradient<double>)
      .composed(body);
}

}  // namespace
}  // namespace stepnet::cpu_softmax_loss_target
