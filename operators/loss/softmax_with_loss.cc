// SoftmaxWithLoss: P = softmax of each row of X, and
//   loss = scale * sum(w[n] l[n]) / sum(w), l[n] = -sum(T[n, j] log P[n, j]); 0 if the weights sum to 0.
// T is one label per row, or with label_prob a distribution per row. X is flattened before `axis`.
// SpatialSoftmaxWithLoss: the same where X is [N, D, ...] and a row is what stands along dimension 1. T is a label for
// each of the other places; -1 says that there is none, and takes the place out of both sums.
//
// dX = (P sum(T) - T) w scale / sum(w) dloss, with the sum of a row, which is 1. It reads P, T and the weights; of X
// only the shape, so X may be dropped after the forward pass. A gradient of P itself comes on top of that. Its
// derivatives follow from the formula. The gradients of T and of the weights are in softmax_loss_target.cc; they read
// X. With label_prob, where T may have a gradient, dX reads X, too, and computes P again, so that not both are kept.

#include <string>
#include <type_traits>

#include "core/operator/flops.h"
#include "operators/loss/softmax_loss_body.h"
#include "operators/loss/softmax_row.h"

namespace stepnet::cpu_softmax_with_loss {
namespace {

template <class Args>
void infer(const Args& a, ShapeCall& c) {
  if (!c.known(0)) return;
  check_targets(a, c, c.shape(0), c.dtype(0), 1, c.has(2) ? 2 : -1);
  c.set_like(0, 0);
  c.set(1, c.dtype(0), Shape{});
}

template <class T>
void check_distributions(const LossTargets<T>& targets, const OneAxis& lines) {
  for (int64_t n = 0; n < lines.lines(); ++n) {
    for (int64_t j = 0; j < lines.size; ++j)
      if (!(targets.share(n, j) >= 0))
        fail("T[{}, {}] is {}, but a probability is not negative", n, j, targets.share(n, j));
    const double sum = targets.shares_sum(n);
    if (!(std::abs(sum - 1) < kSumError)) fail("row {} of T sums to {}, but must sum to 1", n, sum);
  }
}

// Writes the row's probabilities and returns the logarithm that turns x into log P. p may be x.
template <class T>
double softmax_row(In<T> x, Out<T> p) {
  const int64_t size = static_cast<int64_t>(x.size());
  const T most = vec_max(x);
  subtract_from_row(size, x.data(), most, p.data());
  vec_exp(p, p);
  const double sum = vec_sum(In<T>(p));
  const T scale = static_cast<T>(1 / sum);
  multiply_row(size, scale, p.data(), p.data());
  return static_cast<double>(most) + std::log(sum);
}

// The loss of a row with these scores, `inner` apart.
template <class T>
double row_loss(const LossTargets<T>& targets, int64_t n, int64_t size, const T* x, int64_t inner, double log_sum) {
  if (targets.ignored(n)) return 0;
  if (!targets.distributions()) return log_sum - static_cast<double>(x[targets.label(n) * inner]);
  const T* shares = targets.shares(n);
  double sum = 0;
  for (int64_t j = 0; j < size; ++j)
    if (shares[j] > 0) sum += static_cast<double>(shares[j]) * (log_sum - static_cast<double>(x[j * inner]));
  return sum;
}

// Rows with gaps are worked on in a buffer.
template <class T>
double softmax_line(const OneAxis& lines, const T* x, T* p) {
  const auto size = static_cast<size_t>(lines.size);
  if (lines.inner == 1) return softmax_row(In<T>(x, size), Out<T>(p, size));
  const auto row = thread_buffer<T>(ThreadBuffer::line, size);
  for (int64_t j = 0; j < lines.size; ++j) row[j] = x[j * lines.inner];
  const double log_sum = softmax_row(In<T>(row), Out<T>(row));
  for (int64_t j = 0; j < lines.size; ++j) p[j * lines.inner] = row[j];
  return log_sum;
}

template <class Args, class T>
void forward(const Args& a, In<T> x, const Tensor& target, In<T> weights, Out<T> p, Out<T> loss, Call& call) {
  const OneAxis lines = loss_lines(a, call.in(0).shape());
  require(lines.size > 0 || lines.lines() == 0, "X {} has no classes", call.in(0).shape());
  const LossTargets<T> targets(a, lines, target, weights);
  if (a.label_prob) check_distributions(targets, lines);
  const auto losses = thread_buffer<double>(ThreadBuffer::lines, static_cast<size_t>(lines.lines()));
  lines.each_line(2.0, [&](int64_t n, int64_t first) {
    const double log_sum = softmax_line(lines, x.data() + first, p.data() + first);
    losses[n] = row_loss(targets, n, lines.size, x.data() + first, lines.inner, log_sum);
  });
  loss[0] = static_cast<T>(static_cast<double>(a.scale) * targets.mean(losses));
}

template <class Args>
void infer_gradient(const Args& a, ShapeCall& c) {
  const GradientInputs in = gradient_inputs(c.inputs());
  require(c.has(in.dloss), "of five inputs the last, dloss, is absent");
  if (c.known(0)) check_targets(a, c, c.shape(0), c.dtype(0), 1, in.weights);
  if (c.known(0) && c.known(in.p))
    require(c.shape(in.p).size() == c.shape(0).size(), "P is {}, but X {}", c.shape(in.p), c.shape(0));
  if (c.known(in.dloss))
    require(c.shape(in.dloss).size() == 1, "dloss must be one number, but is {}", c.shape(in.dloss));
  c.set_like(0, 0);
}

// dX of line n, whose elements are `inner` apart, is factor times P sum(T) - T.
template <class T>
void gradient_line(const OneAxis& lines, const LossTargets<T>& targets, int64_t n, double factor, const T* p, T* dx) {
  const T f = static_cast<T>(factor), of_p = static_cast<T>(factor * targets.shares_sum(n));
  if (lines.inner == 1)
    multiply_row(lines.size, of_p, p, dx);
  else
    for (int64_t j = 0; j < lines.size; ++j) dx[j * lines.inner] = of_p * p[j * lines.inner];
  if (targets.distributions()) {
    const T* shares = targets.shares(n);
    for (int64_t j = 0; j < lines.size; ++j) dx[j * lines.inner] -= shares[j] * f;
  } else if (!targets.ignored(n)) {
    dx[targets.label(n) * lines.inner] -= f;
  }
}

template <class Args, class T>
void gradient(const Args& a, Call& call) {
  const GradientInputs in = gradient_inputs(call.inputs());
  const OneAxis lines = loss_lines(a, call.in(0).shape());
  const In<T> p = call.in_span<T>(in.p), weights = in.weights < 0 ? In<T>{} : call.in_span<T>(in.weights);
  const LossTargets<T> targets(a, lines, call.in(1), weights);
  const double total = targets.weight_sum(), dloss = static_cast<double>(call.in_span<T>(in.dloss)[0]);
  const double factor = total != 0 ? static_cast<double>(a.scale) * dloss / total : 0;
  const Out<T> dx = call.out_span<T>(0);
  lines.each_line(0.5, [&](int64_t n, int64_t first) {
    gradient_line(lines, targets, n, factor * targets.weight(n), p.data() + first, dx.data() + first);
  });
}

// Of a class, of a line, and of the mean over lines, with distributions, labels or weights.
template <class Args>
double flops(const Args& a, const ShapeCall& c) {
  if (!c.known(0)) return 0;
  const bool weighted = c.has(2);
  const auto lines = static_cast<double>(loss_lines(a, c.shape(0)).lines());
  return input_size(c, 0) * (a.label_prob ? 7 : 4) + lines * (3 + 2 * int{weighted} + int{!a.label_prob}) + 2;
}

template <class Args>
double gradient_flops(const Args& a, const ShapeCall& c) {
  if (!c.known(0)) return 0;
  const bool weighted = gradient_inputs(c.inputs()).weights >= 0 && c.has(2);
  const auto lines = static_cast<double>(loss_lines(a, c.shape(0)).lines());
  return input_size(c, 0) * (a.label_prob ? 4 : 1) + lines * (1 + 2 * int{weighted}) + 2;
}

// How SoftmaxLossTargetGradient is told what the loss was.
std::vector<Argument> loss_args(const LossArgs& a) {
  return {make_arg("label_prob", a.label_prob), make_arg("scale", a.scale), make_arg("axis", a.axis),
          make_arg("spatial", a.spatial)};
}

Value probabilities(Formula& f, const LossArgs& a) {
  return a.label_prob ? f.op("Softmax", {f.x("X")}, {make_arg("axis", a.axis)}) : f.y("P");
}

// P (dP - sum(P dP)) along the classes.
Value through_softmax(Formula& f, const LossArgs& a, Value p) {
  const Value dp = f.dy("P");
  if (!a.spatial) return f.op("SoftmaxGradient", {p, dp}, {make_arg("axis", a.axis)});
  const Value sum = f.op("ReduceSum", {f.op("Mul", {p, dp})}, {make_arg("axes", std::vector<int64_t>{1})});
  return f.op("Mul", {p, f.op("Sub", {dp, sum}, {make_arg("broadcast", true)})});
}

template <class Args>
std::vector<Gradient> derivatives(Formula& f, const std::string& type) {
  const auto& a = f.args<Args>();
  const bool weighted = f.has_x("weights");
  const Value weights = weighted ? f.x("weights") : Value();
  Gradient x, t, w;
  if (f.wants("X")) {
    std::vector<Value> terms;
    const Value p = probabilities(f, a);
    if (f.has_dy("loss")) {
      std::vector<Value> inputs = {f.x("X"), f.x("T"), p, f.dy("loss")};
      if (weighted) inputs.insert(inputs.begin() + 2, weights);
      terms.push_back(f.op(type + "Gradient", inputs, f.forward_args()));
    }
    if (f.has_dy("P")) terms.push_back(through_softmax(f, a, p));
    x = terms.size() == 1 ? terms[0] : f.op("Sum", terms);
  }
  const std::vector<bool> wanted = {f.wants("T") && a.label_prob, weighted && f.wants("weights")};
  if (f.has_dy("loss") && (wanted[0] || wanted[1])) {
    const std::vector<Value> d =
        f.ops("SoftmaxLossTargetGradient", {f.x("X"), f.x("T"), f.dy("loss"), weights}, loss_args(a), wanted);
    t = d[0], w = d[1];
  }
  return {x, t, w};
}

template <class Args>
std::vector<Value> gradient_body(Formula& f) {
  using composing::reshaped, composing::sub;
  const auto& a = f.args<Args>();
  const GradientInputs in = gradient_inputs(f.inputs());
  const Value p = a.spatial ? reshaped(f, f.x_at(in.p), f.x_at(0)) : f.x_at(in.p);
  const composing::LossBody b(f, a, p, f.x_at(1), in.weights < 0 ? Value() : f.x_at(in.weights), f.x_at(in.dloss));
  const Value expected = a.label_prob ? b.times(b.scores, b.line_sums(b.shares)) : b.scores;
  return {reshaped(f, b.times(sub(f, expected, b.shares), b.times(b.weights, b.factor)), f.x_at(0))};
}

template <class Args>
OpBuilder<Args>& add_args(OpBuilder<Args>& builder) {
  builder.arg("scale", static_cast<float Args::*>(&LossArgs::scale), 1.0F, "a factor of the loss")
      .arg("only_loss", static_cast<bool Args::*>(&LossArgs::only_loss), false, "accepted, and makes no difference");
  if constexpr (std::is_same_v<Args, LossArgs>) {
    builder.arg("label_prob", &LossArgs::label_prob, false, "T holds a distribution per row, not a label")
        .arg("axis", &LossArgs::axis, 1, "where a row of X begins, which has all dimensions from there on")
        .refuses("order", "NCHW", "would put the classes into the last dimension; axis says where they are")
        .refuses("average_by_batch_size", 0, "would divide the loss by the number of rows, not by their weights' sum");
  } else {
    builder.arg("order", &SpatialLossArgs::order, std::string("NCHW"), "the classes are in dimension 1",
                one_of({"NCHW"}));
  }
  return builder;
}

// The loss of each line, and their sums.
template <class Args>
std::vector<int64_t> gpu_workspace(const Args& a, const Call& c) {
  constexpr int64_t kNumber = sizeof(double);
  return {kNumber * loss_lines(a, c.in(0).shape()).lines(), 2 * kNumber};
}
template <class Args>
std::vector<int64_t> gradient_gpu_workspace(const Args&, const Call&) {
  return {sizeof(double)};
}

// The operator `type`, with all but its doc and inputs.
template <class Args>
OpBuilder<Args>& declare_loss(OpBuilder<Args>& b, const std::string& type) {
  return b.input("weights", "the weight of each row; 1 if left out")
      .optional()
      .output("P", "probabilities, like X")
      .output("loss", "a scalar")
      .gpu_workspace(gpu_workspace<Args>)
      .shape(infer<Args>)
      .flops(flops<Args>)
      .cpu(forward<Args, float>, forward<Args, double>)
      .derivatives({"X", "T", "weights"}, [type](Formula& f) { return derivatives<Args>(f, type); });
}

template <class Args>
Registration loss_gradient(const std::string& type) {
  OpBuilder<Args> b(type + "Gradient");
  b.doc("Gradient of " + type + " through its loss. Inputs are X, T, P, dloss, or X, T, weights, P, dloss.");
  return add_args(b)
      .input("X", type + "'s scores")
      .shape_only()
      .input("T", "its labels or distributions")
      .types({DType::int32, DType::int64, DType::float32, DType::float64, DType::float16, DType::bfloat16})
      .input("weights_or_P", "of five inputs the weights, of four the probabilities")
      .input("P_or_dloss", "of five inputs the probabilities, of four the loss's gradient")
      .input("dloss", "of five inputs the loss's gradient")
      .optional()
      .output("dX", "like X")
      .gpu_workspace(gradient_gpu_workspace<Args>)
      .shape(infer_gradient<Args>)
      .flops(gradient_flops<Args>)
      .template cpu_for<float>(gradient<Args, float>)
      .template cpu_for<double>(gradient<Args, double>)
      .composed(gradient_body<Args>);
}

REGISTER(softmax_with_loss) {
  OpBuilder<LossArgs> b("SoftmaxWithLoss");
  add_args(b)
      .doc("Softmax of scores and the mean cross entropy of their labels.")
      .input("X", "scores, N rows of D classes after flattening")
      .input("T",
             "N labels (int32 or int64), or with label_prob N * D probabilities, of which each row sums to 1 +- 1e-4")
      .types({DType::int32, DType::int64, DType::float32, DType::float64, DType::float16, DType::bfloat16});
  return declare_loss(b, "SoftmaxWithLoss")
      .precision(Precision::float32)
      .example({"X=3,4", "T=int32,3:2,0,3"}, {"scale=0.5"})
      .example({"X=3,4", "T=int64,3:2,0,3", "weights=3,0.5..2"})
      .example({"X=2,3", "T=6:0.25,0.25,0.5,0.125,0.625,0.25"}, {"label_prob=true"})
      .example({"X=2,3", "T=6:0.25,0.25,0.5,0.125,0.625,0.25", "weights=2,0.5..2"}, {"label_prob=true", "scale=2"})
      .example({"X=2,2,3", "T=int32,2,2:2,0,1,1"}, {"axis=2"})
      .example({"X=0,3", "T=int32,0"});
}

REGISTER(spatial_softmax_with_loss) {
  OpBuilder<SpatialLossArgs> b("SpatialSoftmaxWithLoss");
  add_args(b)
      .doc("Softmax over dimension 1 of scores, and the mean cross entropy of the labels of all places.")
      .input("X", "scores, [N, D, ...]: D classes, and a label for each of the other places")
      .input("T", "[N, ...], labels from 0 to D - 1; a place with -1 counts neither in the loss nor in the mean")
      .types({DType::int32, DType::int64});
  return declare_loss(b, "SpatialSoftmaxWithLoss")
      .example({"X=2,3,2,1", "T=int32,2,2,1:2,0,-1,1"}, {"scale=0.5"})
      .example({"X=1,2,3", "T=int64,1,3:0,1,1", "weights=1,3,0.5..2"})
      .example({"X=1,2,0,2", "T=int32,1,0,2"});
}

REGISTER(softmax_with_loss_gradient) { return loss_gradient<LossArgs>("SoftmaxWithLoss"); }
REGISTER(spatial_softmax_with_loss_gradient) { return loss_gradient<SpatialLossArgs>("SpatialSoftmaxWithLoss"); }

}  // namespace
}  // namespace stepnet::cpu_softmax_with_loss
