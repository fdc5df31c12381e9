// Gradients of SoftmaxWithLoss and SpatialSoftmaxWithLoss beyond that of X: of the targets and weights, and of second
// order. Args say which loss it was; names are those of softmax_with_loss.cc.
//
// With e[n, j] = -log P[n, j], W = sum(w), c = scale dloss / W, and means over rows weighted by w:
//   dT = c w e,  dw = c (l - mean(l)).
// With u for the gradient of dX = c w (P t - T), t the row's sum of T, and q[n] = sum(u (P t - T)):
//   P: c w u t,  T: c w (sum(u P) - u),  w: c (q - mean(q)),  dloss: scale mean(q).
// With v and z for the gradients of dT and dw, s[n] = sum(v e), F = sum(z (l - mean(l))), b = c (z - w sum(z) / W), and
// a = c w v + b T:
//   X: P sum(a) - a,  T: b e,  w: c (s - mean(s)) - (F + sum(z) (l - mean(l))) c / W,  dloss: scale (mean(s) + F / W).
// Sums without a dimension named are over a row where there is something to add up, else over rows. All is 0 if W is 0.

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loss/softmax_loss.h"

namespace stepnet {
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

// For each line log(sum(exp(x))) and its loss.
template <class T>
struct LineLosses {
  std::vector<double> log_sums, losses;

  LineLosses(const LossContext<T>& context, In<T> x) : log_sums(context.count()), losses(context.count()) {
    const OneAxis& lines = context.lines;
    if (lines.size == 0) return;
    lines.each_line(10.0, [&](int64_t n, int64_t first) {
      log_sums[n] = log_sum(lines, x.data() + first);
      double loss = 0;
      for (int64_t j = 0; j < lines.size; ++j)
        if (const double share = context.targets.share(n, j); share != 0)
          loss += share * (log_sums[n] - static_cast<double>(x[first + j * lines.inner]));
      losses[n] = loss;
    });
  }
};

template <class T>
void target_gradient(const LossArgs& a, In<T> x, const Tensor& target, In<T> dloss, In<T> weights, Out<T> dt, Out<T> dw,
                     Call& call) {
  const LossContext<T> context(a, call.in(0).shape(), target, weights, dloss[0]);
  const LineLosses<T> each(context, x);
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

template <class T>
void second_gradient(const LossArgs& a, In<T> p, const Tensor& target, In<T> dloss, In<T> u, In<T> weights, Out<T> gp,
                     Out<T> gt, Out<T> gdloss, Out<T> gw, Call& call) {
  const LossContext<T> context(a, call.in(0).shape(), target, weights, dloss[0]);
  const OneAxis& lines = context.lines;
  const LossTargets<T>& targets = context.targets;
  std::vector<double> q(context.count(), 0.0);
  lines.each_line(4.0, [&](int64_t n, int64_t first) {
    if (targets.ignored(n)) {
      for (int64_t j = 0; !gp.empty() && j < lines.size; ++j) gp[first + j * lines.inner] = T(0);
      return;
    }
    const double sum = targets.shares_sum(n), factor = context.factor * targets.weight(n);
    double along = 0, target_along = 0;
    for (int64_t j = 0, at = first; j < lines.size; ++j, at += lines.inner) {
      along += static_cast<double>(u[at]) * static_cast<double>(p[at]);
      target_along += static_cast<double>(u[at]) * targets.share(n, j);
      if (!gp.empty()) gp[at] = static_cast<T>(factor * sum * static_cast<double>(u[at]));
    }
    q[n] = along * sum - target_along;
    for (int64_t j = 0, at = first; !gt.empty() && j < lines.size; ++j, at += lines.inner)
      gt[at] = static_cast<T>(factor * (along - static_cast<double>(u[at])));
  });
  const double mean = targets.mean(q);
  for (size_t n = 0; n < gw.size(); ++n)
    gw[n] = targets.ignored(static_cast<int64_t>(n)) ? T(0) : static_cast<T>(context.factor * (q[n] - mean));
  if (!gdloss.empty()) gdloss[0] = static_cast<T>(context.scale * mean);
}

// The gradients of the targets' and weights' gradients. An empty v or z is zeros.
template <class T>
class TargetSecond {
 public:
  TargetSecond(const LossArgs& a, const Shape& shape, In<T> x, const Tensor& target, In<T> dloss, In<T> v, In<T> z,
               In<T> weights)
      : context_(a, shape, target, weights, dloss[0]),
        x_(x),
        v_(v),
        z_(z),
        each_(context_, x),
        mean_(context_.targets.mean(each_.losses)) {
    along_.resize(context_.count(), 0.0);
    for (int64_t n = 0; n < context_.lines.lines(); ++n) {
      if (context_.targets.ignored(n)) continue;
      z_sum_ += z_of(n);
      outside_ += z_of(n) * (each_.losses[n] - mean_);
      each_element(n, [&](int64_t, int64_t at) { along_[n] += v_of(at) * surprise(n, at); });
    }
  }

  void put_lines(Out<T> gx, Out<T> gt) const {
    context_.lines.each_line(4.0, [&](int64_t n, int64_t) {
      const bool ignored = context_.targets.ignored(n);
      const double weight = context_.targets.weight(n);
      const double b = ignored ? 0 : context_.factor * (z_of(n) - weight * z_sum_ * context_.by_total);
      const auto a = [&](int64_t j, int64_t at) {
        return context_.factor * weight * v_of(at) + b * context_.targets.share(n, j);
      };
      double sum = 0;
      each_element(n, [&](int64_t j, int64_t at) { sum += a(j, at); });
      each_element(n, [&](int64_t j, int64_t at) {
        if (!gx.empty()) gx[at] = static_cast<T>(std::exp(-surprise(n, at)) * sum - a(j, at));
        if (!gt.empty()) gt[at] = static_cast<T>(b * surprise(n, at));
      });
    });
  }

  void put_sums(Out<T> gdloss, Out<T> gw) const {
    const double mean = context_.targets.mean(along_);
    for (int64_t n = 0; n < static_cast<int64_t>(gw.size()); ++n) {
      const double of_total = (outside_ + z_sum_ * (each_.losses[n] - mean_)) * context_.by_total;
      gw[n] = context_.targets.ignored(n) ? T(0) : static_cast<T>(context_.factor * (along_[n] - mean - of_total));
    }
    if (!gdloss.empty()) gdloss[0] = static_cast<T>(context_.scale * (mean + outside_ * context_.by_total));
  }

 private:
  template <class Fn>
  void each_element(int64_t n, Fn fn) const {
    const int64_t first = context_.lines.first(n);
    for (int64_t j = 0; j < context_.lines.size; ++j) fn(j, first + j * context_.lines.inner);
  }
  double z_of(int64_t n) const { return z_.empty() ? 0 : static_cast<double>(z_[n]); }
  double v_of(int64_t at) const { return v_.empty() ? 0 : static_cast<double>(v_[at]); }
  double surprise(int64_t n, int64_t at) const { return each_.log_sums[n] - static_cast<double>(x_[at]); }

  LossContext<T> context_;
  In<T> x_, v_, z_;
  LineLosses<T> each_;
  double mean_, z_sum_ = 0, outside_ = 0;
  std::vector<double> along_;
};

template <class T>
void target_second_gradient(const LossArgs& a, In<T> x, const Tensor& target, In<T> dloss, In<T> v, In<T> z,
                            In<T> weights, Out<T> gx, Out<T> gt, Out<T> gdloss, Out<T> gw, Call& call) {
  const TargetSecond<T> second(a, call.in(0).shape(), x, target, dloss, v, z, weights);
  second.put_lines(gx, gt);
  second.put_sums(gdloss, gw);
}

// Input 0 has the shape of X; 1 is T, 2 dloss, and `weights` the weights.
void check_inputs(const LossArgs& a, const ShapeCall& c, int weights) {
  if (c.known(0)) check_targets(a, c, c.shape(0), c.dtype(0), 1, weights);
  if (c.known(2)) require(c.shape(2).size() == 1, "dloss must be one number, but is {}", c.shape(2));
}

void infer_target(const LossArgs& a, ShapeCall& c) {
  check_inputs(a, c, 3);
  c.set_like(0, 1);
  c.set_like(1, 3);
}

void check_like(const ShapeCall& c, int i, int like, const char* name, const char* other) {
  if (c.known(i) && c.known(like))
    require(c.shape(i).size() == c.shape(like).size(), "{} is {}, but {} {}", name, c.shape(i), other, c.shape(like));
}

// Of the gradients of the first three inputs and of the weights.
void set_like_inputs(ShapeCall& c, int weights) {
  for (int i = 0; i < 3; ++i) c.set_like(i, i);
  c.set_like(3, weights);
}

void infer_second(const LossArgs& a, ShapeCall& c) {
  check_inputs(a, c, 4);
  check_like(c, 3, 0, "ddX", "P");
  set_like_inputs(c, 4);
}

void infer_target_second(const LossArgs& a, ShapeCall& c) {
  check_inputs(a, c, 5);
  check_like(c, 3, 1, "ddT", "T");
  check_like(c, 4, 5, "ddweights", "weights");
  set_like_inputs(c, 5);
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

// The outputs of an operator of second order.
OpBuilder<LossArgs>& declare_gradients(OpBuilder<LossArgs>& builder, const char* of_first, const char* like_first) {
  return builder.output(of_first, like_first)
      .optional()
      .output("T_grad", "like T, if these are distributions")
      .types({DType::float32, DType::float64})
      .optional()
      .output("dloss_grad", "like dloss")
      .optional()
      .output("weights_grad", "like weights, which must be there")
      .optional()
      .no_gradient("third derivatives of SoftmaxWithLoss are not written");
}

std::vector<Gradient> target_derivatives(Formula& f) {
  const bool shares = f.args<LossArgs>().label_prob, weighted = f.has_x("weights");
  const std::vector<Value> d =
      f.ops("SoftmaxLossTargetSecondGradient",
            {f.x("X"), f.x("T"), f.x("dloss"), f.dy("dT"), f.dy("dweights"), weighted ? f.x("weights") : Value()},
            f.forward_args(), {f.wants("X"), shares && f.wants("T"), f.wants("dloss"), weighted && f.wants("weights")});
  return {d[0], d[1], d[2], d[3]};
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
  builder.doc("Gradients of SoftmaxWithLoss through its loss with respect to distributions and weights.");
  return declare_weights(declare(builder, "X", "the loss's scores"))
      .output("dT", "like T, if these are distributions")
      .types({DType::float32, DType::float64})
      .optional()
      .output("dweights", "like weights, which must be there")
      .optional()
      .shape(infer_target)
      .flops([](const LossArgs& a, const ShapeCall& c) {
        return flops(a, c, 3, {8, 5, 3, 3});
      })
      .cpu(target_gradient<float>, target_gradient<double>)
      .derivatives({"X", "T", "dloss", "weights"}, target_derivatives);
}

REGISTER(softmax_loss_second_gradient) {
  auto builder = op<LossArgs>("SoftmaxLossSecondGradient");
  builder.doc("Gradients of SoftmaxWithLossGradient and of SpatialSoftmaxWithLossGradient.");
  declare_weights(declare(builder, "P", "the loss's probabilities").input("ddX", "gradient of dX"));
  return declare_gradients(builder, "P_grad", "like P")
      .shape(infer_second)
      .flops([](const LossArgs& a, const ShapeCall& c) {
        return flops(a, c, 4, {8, 6, 3, 4});
      })
      .cpu(second_gradient<float>, second_gradient<double>);
}

REGISTER(softmax_loss_target_second_gradient) {
  auto builder = op<LossArgs>("SoftmaxLossTargetSecondGradient");
  builder.doc("Gradients of SoftmaxLossTargetGradient.");
  declare_weights(declare(builder, "X", "the loss's scores")
                      .input("ddT", "gradient of dT; zeros if left out")
                      .optional()
                      .input("ddweights", "gradient of dweights; zeros if left out")
                      .optional());
  return declare_gradients(builder, "X_grad", "like X")
      .shape(infer_target_second)
      .flops([](const LossArgs& a, const ShapeCall& c) {
        return flops(a, c, 5, {18, 16, 5, 8});
      })
      .cpu(target_second_gradient<float>, target_second_gradient<double>);
}

}  // namespace
}  // namespace stepnet
