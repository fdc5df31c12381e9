// SoftmaxWithLoss: P = softmax of each row of X, and
//   loss = scale * sum(w[n] l[n]) / sum(w), l[n] = -sum(T[n, j] log P[n, j]); 0 if the weights sum to 0.
// T is one label per row, or with label_prob a distribution per row. X is flattened before `axis`.
//
// dX = (P - T) w scale / sum(w) dloss. It reads P, the labels and the weights; of X only the shape, so X may be dropped
// after the forward pass. P itself passes no gradient on.

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/parallel.h"
#include "core/vector_math.h"
#include "operators/axis_rows.h"
#include "operators/labels.h"

namespace stepnet {
namespace {

struct LossArgs {
  bool label_prob = false;
  float scale = 1;
  int32_t axis = 1;
  bool only_loss = false;
};

// Inputs 0 and 1 are X and T; `weights` is an input's index or -1.
void check_shapes(const LossArgs& a, const ShapeCall& c, int weights) {
  const Rows rows = rows_of(a, c.shape(0));
  const int64_t labels = a.label_prob ? rows.count * rows.size : rows.count;
  if (c.known(1)) {
    const DType t = c.dtype(1);
    require(a.label_prob ? t == c.dtype(0) : !is_floating(t), "T must be {}, but is {}",
            a.label_prob ? "distributions of X's type (label_prob is set)" : "int32 or int64 labels", c.in(1));
    require(c.shape(1).size() == labels, "T is {}, but X {} has {} rows of {} classes, which need {} values",
            c.shape(1), c.shape(0), rows.count, rows.size, labels);
  }
  if (weights >= 0 && c.known(weights))
    require(c.shape(weights).size() == rows.count, "weights is {}, but X {} has {} rows", c.shape(weights), c.shape(0),
            rows.count);
}

void infer(const LossArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  check_shapes(a, c, c.has(2) ? 2 : -1);
  c.set_like(0, 0);
  c.set(1, c.dtype(0), Shape{});
}

template <class T>
void check_distributions(const T* t, const Rows& rows) {
  for (int64_t n = 0; n < rows.count; ++n) {
    double sum = 0;
    for (int64_t j = 0; j < rows.size; ++j) {
      const double value = static_cast<double>(t[n * rows.size + j]);
      require(value >= 0, "T[{}, {}] is {}, but a probability is not negative", n, j, value);
      sum += value;
    }
    require(std::abs(sum - 1) < 1e-5, "row {} of T sums to {}, but must sum to 1", n, sum);
  }
}

template <class T>
void subtract(int64_t size, const T* x, T shift, T* y) {
#pragma omp simd
  for (int64_t j = 0; j < size; ++j) y[j] = x[j] - shift;
}

template <class T>
void multiply(int64_t size, T factor, const T* x, T* y) {
#pragma omp simd
  for (int64_t j = 0; j < size; ++j) y[j] = factor * x[j];
}

// Writes the row's probabilities and returns the logarithm that turns x into log P.
template <class T>
double softmax_row(In<T> x, Out<T> p) {
  const int64_t size = static_cast<int64_t>(x.size());
  const T most = vec_max(x);
  subtract(size, x.data(), most, p.data());
  vec_exp(p, p);
  const double sum = vec_sum(In<T>(p));
  const T scale = static_cast<T>(1 / sum);
  multiply(size, scale, p.data(), p.data());
  return static_cast<double>(most) + std::log(sum);
}

// The weighted mean in a fixed order, whatever the number of threads.
template <class T>
double weighted_mean(const std::vector<double>& losses, In<T> weights) {
  double sum = 0, total = 0;
  for (size_t n = 0; n < losses.size(); ++n) {
    const double w = weights.empty() ? 1 : static_cast<double>(weights[n]);
    sum += w * losses[n];
    total += w;
  }
  return total != 0 ? sum / total : 0;
}

// `row_loss(n, x, log_sum)` is the loss of row n.
template <class T, class Fn>
double run_rows(const Rows& rows, In<T> x, In<T> weights, Out<T> p, Fn row_loss) {
  thread_local std::vector<double> buffer;
  std::vector<double>& losses = buffer;  // this thread's, also inside the region
  losses.resize(static_cast<size_t>(rows.count));
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const In<T> row = x.subspan(n * rows.size, rows.size);
      losses[n] = row_loss(n, row, softmax_row(row, p.subspan(n * rows.size, rows.size)));
    }
  };
  parallel_for(rows.count, 2.0 * static_cast<double>(rows.size), std::ref(range));
  return weighted_mean(losses, weights);
}

template <class T>
void forward(const LossArgs& a, In<T> x, const Tensor& target, In<T> weights, Out<T> p, Out<T> loss, Call& call) {
  const Rows rows = rows_of(a, call.in(0).shape());
  require(rows.size > 0 || rows.count == 0, "X {} has no classes", call.in(0).shape());
  double mean = 0;
  if (a.label_prob) {
    const T* t = target.data<T>();
    check_distributions(t, rows);
    mean = run_rows(rows, x, weights, p, [&](int64_t n, In<T> row, double log_sum) {
      double sum = 0;
      for (int64_t j = 0; j < rows.size; ++j)
        if (const T share = t[n * rows.size + j]; share > 0)
          sum += static_cast<double>(share) * (log_sum - static_cast<double>(row[j]));
      return sum;
    });
  } else {
    with_labels(target, rows.size, [&](auto label) {
      mean = run_rows(rows, x, weights, p, [&](int64_t n, In<T> row, double log_sum) {
        return log_sum - static_cast<double>(row[label[n]]);
      });
    });
  }
  loss[0] = static_cast<T>(static_cast<double>(a.scale) * mean);
}

// The gradient's inputs are X, T, [weights,] P, dloss.
struct GradientInputs {
  int weights, p, dloss;
};
GradientInputs gradient_inputs(int count) { return count == 5 ? GradientInputs{2, 3, 4} : GradientInputs{-1, 2, 3}; }

void infer_gradient(const LossArgs& a, ShapeCall& c) {
  const GradientInputs in = gradient_inputs(c.inputs());
  if (c.known(0)) check_shapes(a, c, in.weights);
  if (c.known(0) && c.known(in.p))
    require(c.shape(in.p).size() == c.shape(0).size(), "P is {}, but X {}", c.shape(in.p), c.shape(0));
  if (c.known(in.dloss))
    require(c.shape(in.dloss).size() == 1, "dloss must be one number, but is {}", c.shape(in.dloss));
  c.set_like(0, 0);
}

// dX = (P - T) * factor * w for rows [begin, end); `minus_target(n, factor, row)` takes factor * T from row n.
template <class T, class Fn>
void gradient_rows(const Rows& rows, In<T> p, In<T> weights, double factor, Out<T> dx, Fn minus_target) {
  auto range = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T* to = dx.data() + n * rows.size;
      const T f = static_cast<T>(weights.empty() ? factor : factor * static_cast<double>(weights[n]));
      multiply(rows.size, f, p.data() + n * rows.size, to);
      minus_target(n, f, to);
    }
  };
  parallel_for(rows.count, 0.5 * static_cast<double>(rows.size), std::ref(range));
}

template <class T>
void gradient(const LossArgs& a, Call& call) {
  const GradientInputs in = gradient_inputs(call.inputs());
  const Rows rows = rows_of(a, call.in(0).shape());
  const In<T> p = call.in_span<T>(in.p), weights = in.weights < 0 ? In<T>{} : call.in_span<T>(in.weights);
  const double total = weights.empty() ? static_cast<double>(rows.count) : vec_sum(weights);
  const double dloss = static_cast<double>(call.in_span<T>(in.dloss)[0]);
  const double factor = total != 0 ? static_cast<double>(a.scale) * dloss / total : 0;
  const Out<T> dx = call.out_span<T>(0);
  if (a.label_prob) {
    const T* t = call.in(1).data<T>();
    gradient_rows(rows, p, weights, factor, dx, [&](int64_t n, T f, T* to) {
      for (int64_t j = 0; j < rows.size; ++j) to[j] -= t[n * rows.size + j] * f;
    });
  } else {
    with_labels(call.in(1), rows.size, [&](auto label) {
      gradient_rows(rows, p, weights, factor, dx, [&](int64_t n, T f, T* to) { to[label[n]] -= f; });
    });
  }
}

double flops(const LossArgs&, const ShapeCall& c) {
  return c.known(0) ? 5 * static_cast<double>(c.shape(0).size()) : 0;
}

std::vector<Gradient> derivatives(Formula& f) {
  require(!f.has_dy("P"), "the output \"{}\" (P) passes no gradient on; differentiate the loss, or use Softmax",
          f.def().output(0));
  std::vector<Value> inputs = {f.x("X"), f.x("T")};
  if (f.has_x("weights")) inputs.push_back(f.x("weights"));
  inputs.push_back(f.y("P"));
  inputs.push_back(f.dy("loss"));
  if (!f.wants("X")) return {Gradient::none(), Gradient::none(), Gradient::none()};
  return {f.op("SoftmaxWithLossGradient", inputs, f.forward_args()), Gradient::none(), Gradient::none()};
}

OpBuilder<LossArgs>& add_args(OpBuilder<LossArgs>& builder) {
  return builder.arg("label_prob", &LossArgs::label_prob, false, "T holds a distribution per row, not a label")
      .arg("scale", &LossArgs::scale, 1.0F, "a factor of the loss")
      .arg("axis", &LossArgs::axis, 1, "where a row of X begins")
      .arg("only_loss", &LossArgs::only_loss, false, "accepted; the gradient is the loss's in any case")
      .ignored_args({"order"});
}

REGISTER(softmax_with_loss) {
  auto builder = op<LossArgs>("SoftmaxWithLoss");
  builder.doc("Softmax of scores and the mean cross entropy of their labels.");
  return add_args(builder)
      .input("X", "scores, N rows of D classes after flattening")
      .input("T", "N labels (int32 or int64), or with label_prob N * D probabilities")
      .types({DType::int32, DType::int64, DType::float32, DType::float64})
      .input("weights", "[N], the weight of each row; 1 if left out")
      .optional()
      .output("P", "probabilities, like X")
      .output("loss", "a scalar")
      .shape(infer)
      .flops(flops)
      .cpu(forward<float>, forward<double>)
      .derivatives({"X", "T", "weights"}, derivatives);
}

REGISTER(softmax_with_loss_gradient) {
  auto builder = op<LossArgs>("SoftmaxWithLossGradient");
  builder.doc("Gradient of SoftmaxWithLoss through its loss. Inputs are X, T, P, dloss, or X, T, weights, P, dloss.");
  return add_args(builder)
      .input("X", "SoftmaxWithLoss's scores")
      .shape_only()
      .input("T", "its labels or distributions")
      .types({DType::int32, DType::int64, DType::float32, DType::float64})
      .input("weights_or_P", "of five inputs the weights, of four the probabilities")
      .input("P_or_dloss", "of five inputs the probabilities, of four the loss's gradient")
      .input("dloss", "of five inputs the loss's gradient")
      .optional()
      .output("dX", "like X")
      .shape(infer_gradient)
      .cpu_for<float>(gradient<float>)
      .cpu_for<double>(gradient<double>)
      .no_gradient("second derivatives of SoftmaxWithLoss are not written");
}

}  // namespace
}  // namespace stepnet
