// SigmoidCrossEntropyWithLogits: with p = sigmoid(logits), the mean of -(targets log p + (1 - targets) log(1 - p)) over
// the last dimension; 0 if that has no elements. It is computed as max(x, 0) - x t + log(1 + exp(-|x|)), which no x
// makes overflow.
//
// dlogits = dY (p - targets) / D and dtargets = -dY logits / D, for a last dimension of size D. dtargets does not read
// the targets. Their derivatives follow from the formulas.

#include "operators/loss/sigmoid_cross_entropy_with_logits.h"

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/composing.h"

namespace stepnet::cpu_sigmoid_cross_entropy_with_logits {
namespace {

Shape without_last(const Shape& x) { return Shape(x.dims().first(std::max(x.rank() - 1, 0))); }

void check_shapes(const ShapeCall& c, int logits) {
  if (c.known(logits) && c.known(logits + 1))
    require(c.shape(logits) == c.shape(logits + 1), "logits is {}, but targets {}", c.shape(logits),
            c.shape(logits + 1));
}

void infer(const NoArgs&, ShapeCall& c) {
  check_shapes(c, 0);
  if (c.known(0)) c.set(0, c.dtype(0), without_last(c.shape(0)));
}

void infer_gradient(const NoArgs&, ShapeCall& c) {
  check_shapes(c, 1);
  if (c.known(0) && c.known(1))
    require(c.shape(0) == without_last(c.shape(1)), "dY is {}, but logits {}", c.shape(0), c.shape(1));
  c.set_like(0, 1);
  c.set_like(1, 1);
}

template <class T>
void forward(In<T> logits, In<T> targets, Out<T> y, Call& call) {
  const AxisRows rows = logit_rows(call.in(0).shape());
  parallel_for(rows.count, 15.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = 0;
      for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i)
        sum += logit_loss(static_cast<double>(logits[i]), static_cast<double>(targets[i]));
      y[n] = rows.size > 0 ? static_cast<T>(sum / static_cast<double>(rows.size)) : T(0);
    }
  });
}

template <class T>
void gradient(In<T> dy, In<T> logits, In<T> targets, Out<T> dlogits, Out<T> dtargets, Call& call) {
  const AxisRows rows = logit_rows(call.in(1).shape());
  const bool wants_dlogits = call.wants(0), wants_dtargets = call.wants(1);
  parallel_for(rows.count, 10.0 * static_cast<double>(rows.size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const double share = static_cast<double>(dy[n]) / static_cast<double>(rows.size);
      for (int64_t i = n * rows.size; i < (n + 1) * rows.size; ++i) {
        const double x = static_cast<double>(logits[i]);
        if (wants_dlogits) dlogits[i] = static_cast<T>(share * (logit_sigmoid(x) - static_cast<double>(targets[i])));
        if (wants_dtargets) dtargets[i] = static_cast<T>(-share * x);
      }
    }
  });
}

template <int kLogits>
int rows_before_last(const NoArgs&, const ShapeCall& c) {
  return c.known(kLogits) ? std::max(c.shape(kLogits).rank() - 1, 0) : 0;
}

std::vector<Gradient> derivatives(Formula& f) {
  const std::vector<Value> d =
      f.ops("SigmoidCrossEntropyWithLogitsGradient", {f.dy("Y"), f.x("logits"), f.x("targets")}, {},
            {f.wants("logits"), f.wants("targets")});
  return {d[0], d[1]};
}

// A last dimension without elements divides nothing by their number, as that number is laid over the logits first.
std::vector<Value> gradient_body(Formula& f) {
  using composing::by_row, composing::div, composing::fill, composing::map, composing::mul, composing::negative,
      composing::sub;
  const Value dy = f.x("dY"), logits = f.x("logits");
  const auto spread = [&](Value v) {
    return f.same_shape(f.op("SumReduceLikeGradient", {logits, v}, by_row()), logits);
  };
  const Value count = f.same_shape(f.op("SumReduceLike", {fill(f, logits, 1), dy}, by_row()), dy);
  const Value share = div(f, spread(dy), spread(count));
  return {mul(f, share, sub(f, map(f, "Sigmoid", logits), f.x("targets"))), negative(f, mul(f, share, logits))};
}

REGISTER(sigmoid_cross_entropy_with_logits) {
  return op("SigmoidCrossEntropyWithLogits")
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
      .flops([](const auto&, const ShapeCall& c) { return 6 * input_size(c, 0) + output_size(c, 0); })
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivatives({"logits", "targets"}, derivatives);
}

REGISTER(sigmoid_cross_entropy_with_logits_gradient) {
  return op("SigmoidCrossEntropyWithLogitsGradient")
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
      .flops(
          [](const auto&, const ShapeCall& c) { return input_size(c, 0) + 5 * output_size(c, 0) + output_size(c, 1); })
      .cpu(gradient<float>, gradient<double>)
      .composed(gradient_body);
}

}  // namespace
}  // namespace stepnet::cpu_sigmoid_cross_entropy_with_logits
