// SigmoidCrossEntropyWithLogits: with p = sigmoid(logits), the mean of -(targets log p + (1 - targets) log(1 - p)) over
// the last dimension; 0 if that has no elements. It is computed as max(x, 0) - x t + log(1 + exp(-|x|)), which no x
// makes overflow. With s(x) = log(1 + exp(x)), unjoined_lr_loss makes it the mean of (1 - t) s(x) - x t, whose positive
// examples are among the negative ones, too, and log_D_trick that of (2 t - 1) s(-x), whose gradient does not vanish
// where a discriminator is sure.
//
// dlogits = dY (p - targets) / D and dtargets = -dY logits / D, for a last dimension of size D; or ((1 - t) p - t) and
// -(s(x) + x), or (1 - 2 t) (1 - p) and 2 s(-x). dtargets does not read the targets. Their derivatives follow from the
// formulas.

#include "operators/loss/sigmoid_cross_entropy_with_logits.h"

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/composing.h"

namespace stepnet::cpu_sigmoid_cross_entropy_with_logits {
namespace {

Shape without_last(const Shape& x) { return Shape(x.dims().first(std::max(x.rank() - 1, 0))); }

void check_args(const LogitArgs& a) {
  require(!a.log_d_trick || !a.unjoined, "log_D_trick and unjoined_lr_loss are both set; there is one or the other");
}

void check_shapes(const ShapeCall& c, int logits) {
  if (c.known(logits) && c.known(logits + 1))
    require(c.shape(logits) == c.shape(logits + 1), "logits is {}, but targets {}", c.shape(logits),
            c.shape(logits + 1));
}

void infer(const LogitArgs& a, ShapeCall& c) {
  check_args(a);
  check_shapes(c, 0);
  if (c.known(0)) c.set(0, c.dtype(0), without_last(c.shape(0)));
}

void infer_gradient(const LogitArgs& a, ShapeCall& c) {
  check_args(a);
  check_shapes(c, 1);
  if (c.known(0) && c.known(1))
    require(c.shape(0) == without_last(c.shape(1)), "dY is {}, but logits {}", c.shape(0), c.shape(1));
  c.set_like(0, 1);
  c.set_like(1, 1);
}

template <class T>
void forward(const LogitArgs& a, In<T> logits, In<T> targets, Out<T> y, Call& call) {
  const LogitLoss kind = logit_kind(a);
  const AxisRows rows = logit_rows(call.in(0).shape());
  parallel_for(rows.count, 15.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = 0;
      for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i)
        sum += logit_loss(kind, static_cast<double>(logits[i]), static_cast<double>(targets[i]));
      y[n] = rows.size > 0 ? static_cast<T>(sum / static_cast<double>(rows.size)) : T(0);
    }
  });
}

template <class T>
void gradient(const LogitArgs& a, In<T> dy, In<T> logits, In<T> targets, Out<T> dlogits, Out<T> dtargets, Call& call) {
  const LogitLoss kind = logit_kind(a);
  const AxisRows rows = logit_rows(call.in(1).shape());
  const bool wants_dlogits = call.wants(0), wants_dtargets = call.wants(1);
  parallel_for(rows.count, 10.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const double share = static_cast<double>(dy[n]) / static_cast<double>(rows.size);
      for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i) {
        const double x = static_cast<double>(logits[i]);
        if (wants_dlogits) dlogits[i] = static_cast<T>(share * logit_slope(kind, x, static_cast<double>(targets[i])));
        if (wants_dtargets) dtargets[i] = static_cast<T>(share * target_slope(kind, x));
      }
    }
  });
}

template <int kLogits>
int rows_before_last(const LogitArgs&, const ShapeCall& c) {
  return c.known(kLogits) ? std::max(c.shape(kLogits).rank() - 1, 0) : 0;
}

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<Value> d =
      f.ops("SigmoidCrossEntropyWithLogitsGradient", {f.dy("Y"), f.x("logits"), f.x("targets")}, f.forward_args(),
            {f.wants("logits"), f.wants("targets")});
  return {d[0], d[1]};
}

// A last dimension without elements divides nothing by their number, as that number is laid over the logits first.
std::vector<Value> gradient_body(Formula& f) {
  using composing::add, composing::by_row, composing::div, composing::fill, composing::map, composing::mul,
      composing::negative, composing::sub;
  const Value dy = f.x("dY"), logits = f.x("logits"), targets = f.x("targets");
  const auto spread = [&](Value v) {
    return f.same_shape(f.op("SumReduceLikeGradient", {logits, v}, by_row()), logits);
  };
  const Value count = f.same_shape(f.op("SumReduceLike", {fill(f, logits, 1), dy}, by_row()), dy);
  const Value share = div(f, spread(dy), spread(count));
  const Value p = map(f, "Sigmoid", logits);
  const auto less_than_one = [&](Value v) { return sub(f, fill(f, logits, 1), v); };
  switch (logit_kind(f.args<LogitArgs>())) {
    case LogitLoss::unjoined:
      return {mul(f, share, sub(f, mul(f, less_than_one(targets), p), targets)),
              negative(f, mul(f, share, add(f, map(f, "Softplus", logits), logits)))};
    case LogitLoss::log_d: {
      const Value once = mul(f, share, map(f, "Softplus", negative(f, logits)));
      return {mul(f, share, mul(f, less_than_one(add(f, targets, targets)), less_than_one(p))), add(f, once, once)};
    }
    default:
      return {mul(f, share, sub(f, p, targets)), negative(f, mul(f, share, logits))};
  }
}

OpBuilder<LogitArgs>& add_args(OpBuilder<LogitArgs>& b) {
  return b
      .arg("log_D_trick", &LogitArgs::log_d_trick, false, "the mean of (2 targets - 1) log(1 + exp(-logits)) instead")
      .arg("unjoined_lr_loss", &LogitArgs::unjoined, false,
           "the mean of (1 - targets) log(1 + exp(logits)) - targets logits instead");
}

// Operations of one element's loss, and of its derivatives, by the kind.
double loss_flops(const LogitArgs& a) { return a.unjoined ? 8 : a.log_d_trick ? 7 : 6; }
double slope_flops(const LogitArgs& a) { return a.unjoined ? 7 : a.log_d_trick ? 8 : 5; }
double target_flops(const LogitArgs& a) { return a.unjoined || a.log_d_trick ? 5 : 1; }

REGISTER(sigmoid_cross_entropy_with_logits) {
  auto spec = op<LogitArgs>("SigmoidCrossEntropyWithLogits");
  return add_args(spec)
      .doc("Mean cross entropy of targets with the sigmoids of scores, over the last dimension.")
      .input("logits", "scores, any shape")
      .input("targets", "probabilities, like logits")
      .output("Y", "the dimensions of logits but the last")
      .shape(infer)
      .rowwise(rows_before_last<0>)
      .example({"logits=3,4", "targets=3,4,0..1"})
      .example({"logits=2,2,3", "targets=2,2,3,0..1"})
      .example({"logits=4", "targets=4,0..1"})
      .example({"logits=2,0", "targets=2,0"})
      .example({"logits=3,4", "targets=3,4,0..1"}, {"log_D_trick=1"})
      .example({"logits=3,4", "targets=3,4,0..1"}, {"unjoined_lr_loss=1"})
      .flops(
          [](const LogitArgs& a, const ShapeCall& c) { return loss_flops(a) * input_size(c, 0) + output_size(c, 0); })
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivatives({"logits", "targets"}, derivatives);
}

REGISTER(sigmoid_cross_entropy_with_logits_gradient) {
  auto spec = op<LogitArgs>("SigmoidCrossEntropyWithLogitsGradient");
  return add_args(spec)
      .doc("Gradients of SigmoidCrossEntropyWithLogits. An output that is not wanted is left out or \"\".")
      .input("dY", "gradient of its output")
      .input("logits", "its scores")
      .input("targets", "its targets")
      .output("dlogits", "like logits")
      .optional()
      .output("dtargets", "like logits")
      .optional()
      .uses({"dY", "logits"})
      .shape(infer_gradient)
      .rowwise(rows_before_last<1>)
      .flops([](const LogitArgs& a, const ShapeCall& c) {
        return input_size(c, 0) + slope_flops(a) * output_size(c, 0) + target_flops(a) * output_size(c, 1);
      })
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_sigmoid_cross_entropy_with_logits
