// Reductions over some dimensions: ReduceSum, ReduceMean, ReduceL1, ReduceL2, ReduceMax and ReduceMin. A row here is an
// operator and its gradient; gpu/reduce/reduce.cu has the same rows.
//
// Sums, means and norms of nothing are 0, as in AveragedLoss; a maximum or minimum of nothing is an Error.
#include "operators/reduce/reduce.h"

#include <functional>
#include <limits>

#include "core/operator/flops.h"
#include "operators/loops/composing.h"
#include "operators/reduce/reduce_axes.h"

namespace stepnet::cpu_reduce {
namespace {

struct Itself {
  template <class T>
  T operator()(T v) const {
    return v;
  }
};
struct Absolute {
  template <class T>
  T operator()(T v) const {
    return std::abs(v);
  }
};
struct Squared {
  template <class T>
  T operator()(T v) const {
    return v * v;
  }
};

template <class Map, class T>
void sum_of(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_sum(Reduction(a, call.in(0).shape()), x, y, Map());
}

// dX = dY, repeated along the dimensions that were reduced; of X only the shape is read. The derivative of that is
// ReduceSum again.
template <class T>
void sum_gradient(const ReduceArgs& a, In<T> dy, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) { dx[i] = dy[j]; });
}

REGISTER(reduce_sum) {
  return reduction_op("ReduceSum", "the sums")
      .doc("Sums over some dimensions.")
      .flops(flops_per_input(1))
      .precision(Precision::float32)
      .cpu(sum_of<Itself, float>, sum_of<Itself, double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceSumGradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(reduce_sum_gradient) {
  return reduction_gradient_op("ReduceSum", false, false)
      .cpu(sum_gradient<float>, sum_gradient<double>)
      .derivative("dY", [](Formula& f) { return f.op("ReduceSum", {f.dy("dX")}, f.forward_args()); })
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

// dX = dY / n, repeated along the dimensions that were reduced, for n elements per mean; of X only the shape is read.
// The derivative of that is ReduceMean again.
template <class T>
void mean(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  const Reduction reduction(a, call.in(0).shape());
  reduce_sum(reduction, x, y, Itself());
  if (reduction.per_value() == 0) return;
  for (T& value : y) value /= static_cast<T>(reduction.per_value());
}

template <class T>
void mean_gradient(const ReduceArgs& a, In<T> dy, Out<T> dx, Call& call) {
  const Reduction reduction(a, call.in(1).shape());
  const T count = static_cast<T>(reduction.per_value());
  reduction.each_element([&](int64_t i, int64_t j) { dx[i] = dy[j] / count; });
}

REGISTER(reduce_mean) {
  return reduction_op("ReduceMean", "the means; 0 for those of nothing")
      .doc("Means over some dimensions.")
      .flops([](const auto&, const ShapeCall& c) { return input_size(c, 0) + output_size(c, 0); })
      .precision(Precision::float32)
      .cpu(mean<float>, mean<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceMeanGradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(reduce_mean_gradient) {
  return reduction_gradient_op("ReduceMean", false, false)
      .flops(flops_per_input(1))
      .cpu(mean_gradient<float>, mean_gradient<double>)
      .derivative("dY", [](Formula& f) { return f.op("ReduceMean", {f.dy("dX")}, f.forward_args()); })
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

// dX = sign(X) dY, with 0 for the sign of 0. It reads X. With u for its gradient, that of dY is the sum of sign(X) u.
template <class T>
void l1_gradient(const ReduceArgs& a, In<T> dy, In<T> x, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) {
    dx[i] = x[i] > 0 ? dy[j] : x[i] < 0 ? -dy[j] : T(0);
  });
}

REGISTER(reduce_l1) {
  return reduction_op("ReduceL1", "the sums")
      .doc("Sums of absolute values over some dimensions. The gradient of an element of 0 is 0.")
      .flops(flops_per_input(1))
      .precision(Precision::float32)
      .cpu(sum_of<Absolute, float>, sum_of<Absolute, double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceL1Gradient", {f.dy("Y"), f.x("X")}, f.forward_args());
      });
}

REGISTER(reduce_l1_gradient) {
  return reduction_gradient_op("ReduceL1", true, false)
      .cpu(l1_gradient<float>, l1_gradient<double>)
      .derivative("dY",
                  [](Formula& f) {
                    return f.op("ReduceSum", {f.op("Mul", {f.dy("dX"), f.op("Sign", {f.x("X")})})}, f.forward_args());
                  })
      .derivative("X", [](Formula&) { return Gradient::zero(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); });
}

// dX = X / Y dY, and 0 where Y is 0. It reads X and Y. With u for its gradient, the derivatives of that are u / Y dY of
// X, the sum of u X / Y of dY, and the sum of -u X / Y^2 dY of Y, all 0 where Y is 0. Squares are added in X's type, so
// norms of floats are right between about 1e-18 and 1e19.
template <class T>
void norm(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  reduce_sum(Reduction(a, call.in(0).shape()), x, y, Squared());
  for (T& value : y) value = std::sqrt(value);
}

template <class T>
void norm_gradient(const ReduceArgs& a, In<T> dy, In<T> x, In<T> y, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) {
    dx[i] = y[j] == 0 ? T(0) : x[i] / y[j] * dy[j];
  });
}

// The quotients by Y are gradients, which know about a Y of 0.
std::vector<Gradient> norm_second_derivatives(Formula& f) {
  const auto gradient = [&f](Value dy, Value x) {
    return f.op("ReduceL2Gradient", {dy, x, f.x("Y")}, f.forward_args());
  };
  const auto sum_of_product = [&f](Value a, Value b) {
    return f.op("ReduceSum", {f.op("Mul", {a, b})}, f.forward_args());
  };
  Gradient dy, x, y;
  Value slope, turned;
  if (f.wants("dY") || f.wants("Y")) slope = gradient(composing::fill(f, f.x("dY"), 1), f.x("X"));
  if (f.wants("X") || f.wants("Y")) turned = gradient(f.x("dY"), f.dy("dX"));
  if (f.wants("dY")) dy = sum_of_product(f.dy("dX"), slope);
  if (f.wants("X")) x = turned;
  if (f.wants("Y")) y = f.op("Negative", {sum_of_product(turned, slope)});
  return {dy, x, y};
}

REGISTER(reduce_l2) {
  return reduction_op("ReduceL2", "the norms")
      .doc("Euclidean norms over some dimensions. The gradient of a norm of 0 is 0.")
      .flops([](const auto&, const ShapeCall& c) { return 2 * input_size(c, 0) + output_size(c, 0); })
      .precision(Precision::float32)
      .cpu(norm<float>, norm<double>)
      .derivative("X", [](Formula& f) {
        return f.op("ReduceL2Gradient", {f.dy("Y"), f.x("X"), f.y("Y")}, f.forward_args());
      });
}

REGISTER(reduce_l2_gradient) {
  return reduction_gradient_op("ReduceL2", true, true)
      .flops(flops_per_output(2))
      .cpu(norm_gradient<float>, norm_gradient<double>)
      .derivatives({"dY", "X", "Y"}, norm_second_derivatives);
}

// The extreme of each y's elements: of two, the one that is `Before` the other; NaN where there is one.
template <class Before, class T>
void extreme(const ReduceArgs& a, In<T> x, Out<T> y, Call& call) {
  constexpr bool greatest = std::is_same_v<Before, std::greater<>>;
  reduce_extreme(Reduction(a, call.in(0).shape()), x, y, greatest ? least_value<T>() : greatest_value<T>(), Before());
}

// dX = dY where X equals the extreme, and 0 elsewhere. Of equal elements each gets all of dY, as in the public format.
// It reads X and Y. They choose, and so have no part in its own derivative.
template <class T>
void extreme_gradient(const ReduceArgs& a, In<T> dy, In<T> x, In<T> y, Out<T> dx, Call& call) {
  Reduction(a, call.in(1).shape()).each_element([&](int64_t i, int64_t j) { dx[i] = x[i] == y[j] ? dy[j] : T(0); });
}

template <class Before>
OpBuilder<ReduceArgs> extreme_op(const std::string& type, const char* result, const char* doc) {
  OpBuilder<ReduceArgs> b = reduction_op(type, result, infer_nonempty_reduction);
  b.doc(doc)
      .cpu(extreme<Before, float>, extreme<Before, double>, extreme<Before, int32_t>, extreme<Before, int64_t>)
      .derivative("X", [type](Formula& f) {
        return f.op(type + "Gradient", {f.dy("Y"), f.x("X"), f.y("Y")}, f.forward_args());
      });
  return b;
}

// What the gradient is a factor of: 1 where an element equals the extreme, else 0, which is its gradient of ones. Of dY
// it is therefore the gradient of dX, times that and summed.
OpBuilder<ReduceArgs> extreme_gradient_op(const std::string& type) {
  OpBuilder<ReduceArgs> b = reduction_gradient_op(type, true, true);
  b.cpu(extreme_gradient<float>, extreme_gradient<double>)
      .derivative("dY",
                  [type](Formula& f) {
                    const Value ones = composing::fill(f, f.x("dY"), 1);
                    const Value slope = f.op(type + "Gradient", {ones, f.x("X"), f.x("Y")}, f.forward_args());
                    return f.op("ReduceSum", {f.op("Mul", {f.dy("dX"), slope})}, f.forward_args());
                  })
      .derivative("X", [](Formula&) { return Gradient::zero(); })
      .derivative("Y", [](Formula&) { return Gradient::zero(); });
  return b;
}

REGISTER(reduce_max) {
  return extreme_op<std::greater<>>(
      "ReduceMax", "the maxima",
      "Maxima over some dimensions. NaN counts as greater than any number. Each of several elements that equal the "
      "maximum gets the whole gradient.");
}
REGISTER(reduce_max_gradient) { return extreme_gradient_op("ReduceMax"); }

REGISTER(reduce_min) {
  return extreme_op<std::less<>>(
      "ReduceMin", "the minima",
      "Minima over some dimensions. NaN counts as less than any number. Each of several elements that equal the "
      "minimum gets the whole gradient.");
}
REGISTER(reduce_min_gradient) { return extreme_gradient_op("ReduceMin"); }

}  // namespace
}  // namespace stepnet::cpu_reduce
