// Running one operator, reproducible tensors, and the check of derivatives by central differences.
#include "tests/operators/op_test.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/gradient_check.h"
#include "core/passes/gradients.h"
#include "core/random.h"

namespace stepnet::testing {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const Tensor* find_feed(const Feeds& feeds, const std::string& name) {
  for (const auto& [key, value] : feeds)
    if (key == name) return &value;
  return nullptr;
}

void feed_all(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
}

NetDef net_of(const OperatorDef& def, const Feeds& feeds) {
  NetDef net;
  net.set_name("test");
  for (const auto& feed : feeds) net.add_external_input(feed.first);
  *net.add_op() = def;
  return net;
}

RunContext context_of(uint64_t seed) {
  RunContext run;
  run.seed = seed;
  return run;
}

void add_element(Tensor& t, int64_t i, double delta) { t.data<double>()[i] += delta; }

template <class T>
double element_as_double(const Tensor& t, int64_t i) {
  return static_cast<double>(t.data<T>()[i]);
}

double element(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::float32:
      return element_as_double<float>(t, i);
    case DType::float64:
      return element_as_double<double>(t, i);
    case DType::int32:
      return element_as_double<int32_t>(t, i);
    case DType::int64:
      return element_as_double<int64_t>(t, i);
    case DType::boolean:
      return element_as_double<bool>(t, i);
    case DType::uint8:
      return element_as_double<uint8_t>(t, i);
    case DType::int8:
      return element_as_double<int8_t>(t, i);
    case DType::uint16:
      return element_as_double<uint16_t>(t, i);
    case DType::int16:
      return element_as_double<int16_t>(t, i);
    default:
      fail("a test reads numbers from {}", t.str());
  }
}

bool all_finite(const Tensor& t) {
  for (int64_t i = 0; i < t.size(); ++i)
    if (!std::isfinite(element(t, i))) return false;
  return true;
}

// The operator's net and its gradients, run on one set of feeds.
class GradientCheck {
 public:
  GradientCheck(const OperatorDef& def, const Feeds& feeds, const std::vector<std::string>& outputs)
      : forward_(net_of(def, feeds)), feeds_(feeds) {
    const std::vector<Tensor> values = run_op_on(def, feeds);
    for (int i = 0; i < def.output_size(); ++i) {
      const bool asked = std::find(outputs.begin(), outputs.end(), def.output(i)) != outputs.end();
      const bool floating = values[i].defined() && values[i].dtype() == DType::float64;
      if (outputs.empty() ? !floating : !asked) continue;
      targets_.push_back(def.output(i));
      weights_.push_back(normal<double>(values[i].shape(), 1000 + i));
    }
  }

  const Tensor& feed(const std::string& name) const {
    const Tensor* t = find_feed(feeds_, name);
    require(t != nullptr, "\"{}\" is not fed", name);
    require(t->dtype() == DType::float64, "\"{}\" is {}, but a gradient check needs double", name, t->str());
    return *t;
  }

  // Gradients of `wanted` by the operator's derivative, after a second run into memory full of NaN.
  std::vector<Tensor> analytic(const std::vector<std::string>& wanted) const {
    NetDef net = forward_;
    GradientRequest request;
    for (const std::string& y : targets_) {
      request.targets.emplace_back(y, given_name(y));
      net.add_external_input(given_name(y));
    }
    request.wanted = {wanted.begin(), wanted.end()};
    const GradientResult result = add_gradient_operators(net, request);
    Workspace workspace;
    feed_all(workspace);
    Net bound(net, workspace);
    run(bound);
    fill_results_with_nan(net, workspace);
    feed_all(workspace);
    run(bound);
    std::vector<Tensor> gradients;
    for (const std::string& x : wanted) gradients.push_back(gradient_of(x, result, workspace));
    return gradients;
  }

  Tensor numeric(const std::string& name, double step) const {
    Workspace workspace;
    Tensor gradient = Tensor::zeros(DType::float64, feed(name).shape());
    feed_all(workspace);
    Net bound(forward_, workspace);
    for (int64_t i = 0; i < gradient.size(); ++i) {
      const std::vector<Tensor> above = outputs_with(bound, name, i, step);
      const std::vector<Tensor> below = outputs_with(bound, name, i, -step);
      double sum = 0;
      for (size_t k = 0; k < above.size(); ++k)
        for (int64_t j = 0; j < above[k].size(); ++j)
          sum += element(weights_[k], j) * (element(above[k], j) - element(below[k], j));
      gradient.data<double>()[i] = sum / (2 * step);
    }
    return gradient;
  }

 private:
  static std::string given_name(const std::string& output) { return "given_" + output; }

  static void run(Net& net) {
    RunContext context = context_of(1);
    net.set_runs(0);
    net.run(context);
  }

  void feed_all(Workspace& workspace) const {
    testing::feed_all(feeds_, workspace);
    for (size_t k = 0; k < targets_.size(); ++k) workspace.tensor(given_name(targets_[k])) = weights_[k].clone();
  }

  static void fill_results_with_nan(const NetDef& net, Workspace& workspace) {
    for (const OperatorDef& op : net.op())
      for (const std::string& name : op.output()) {
        Blob* blob = workspace.find(name);
        if (!blob || !blob->is_tensor() || blob->tensor().dtype() != DType::float64) continue;
        std::span<double> values = blob->tensor().span<double>();
        std::fill(values.begin(), values.end(), kNaN);
      }
  }

  std::vector<Tensor> outputs_with(Net& net, const std::string& name, int64_t i, double delta) const {
    Workspace& workspace = net.workspace();
    testing::feed_all(feeds_, workspace);
    add_element(workspace.tensor(name), i, delta);
    run(net);
    std::vector<Tensor> values;
    for (const std::string& y : targets_) values.push_back(workspace.fetch(y).clone());
    return values;
  }

  Tensor gradient_of(const std::string& x, const GradientResult& result, const Workspace& workspace) const {
    const auto found = result.gradients.find(x);
    require(found != result.gradients.end() && found->second.defined(), "{} has no gradient", x);
    if (!found->second.is_sparse()) return workspace.fetch(found->second.dense).clone();
    const Tensor indices = to_double(workspace.fetch(found->second.indices));
    const Tensor& values = workspace.fetch(found->second.values);
    Tensor dense = Tensor::zeros(DType::float64, feed(x).shape());
    const int64_t row = dense.shape().size_between(1, dense.rank());
    for (int64_t n = 0; n < indices.size(); ++n)
      for (int64_t j = 0; j < row; ++j)
        dense.data<double>()[static_cast<int64_t>(element(indices, n)) * row + j] += element(values, n * row + j);
    return dense;
  }

  NetDef forward_;
  Feeds feeds_;
  std::vector<std::string> targets_;
  std::vector<Tensor> weights_;
};

}  // namespace

OperatorDef make_op(const std::string& type, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs, const std::vector<Argument>& args) {
  OperatorDef def;
  def.set_type(type);
  for (const std::string& name : inputs) def.add_input(name);
  for (const std::string& name : outputs) def.add_output(name);
  for (const Argument& arg : args) *def.add_arg() = arg;
  return def;
}

std::vector<Tensor> run_op_on(const OperatorDef& def, const Feeds& feeds, uint64_t seed) {
  Workspace workspace;
  feed_all(feeds, workspace);
  RunContext context = context_of(seed);
  run_net_once(net_of(def, feeds), workspace, context);
  std::vector<Tensor> outputs;
  for (const std::string& name : def.output()) {
    const Blob* blob = name.empty() ? nullptr : workspace.find(name);
    outputs.push_back(blob && blob->is_tensor() && !blob->empty() ? blob->tensor().clone() : Tensor());
  }
  return outputs;
}

template <class T>
Tensor normal(const Shape& shape, uint64_t seed, double mean, double std) {
  Tensor t = Tensor::empty(dtype_of<T>(), shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = static_cast<T>(mean + std * random_normal(seed, i));
  return t;
}

template <class T>
Tensor uniform(const Shape& shape, double low, double high, uint64_t seed) {
  Tensor t = Tensor::empty(dtype_of<T>(), shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = static_cast<T>(low + (high - low) * random_uniform(seed, i));
  return t;
}

template <class T>
Tensor integers(const Shape& shape, int64_t low, int64_t high, uint64_t seed) {
  Tensor t = Tensor::empty(dtype_of<T>(), shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = static_cast<T>(random_int(seed, i, low, high));
  return t;
}

template Tensor normal<float>(const Shape&, uint64_t, double, double);
template Tensor normal<double>(const Shape&, uint64_t, double, double);
template Tensor uniform<float>(const Shape&, double, double, uint64_t);
template Tensor uniform<double>(const Shape&, double, double, uint64_t);
template Tensor integers<int32_t>(const Shape&, int64_t, int64_t, uint64_t);
template Tensor integers<int64_t>(const Shape&, int64_t, int64_t, uint64_t);
template Tensor integers<float>(const Shape&, int64_t, int64_t, uint64_t);
template Tensor integers<double>(const Shape&, int64_t, int64_t, uint64_t);
template Tensor integers<bool>(const Shape&, int64_t, int64_t, uint64_t);

Tensor to_double(const Tensor& t) {
  Tensor copy = Tensor::empty(DType::float64, t.shape());
  for (int64_t i = 0; i < t.size(); ++i) copy.data<double>()[i] = element(t, i);
  return copy;
}

std::string compare(const Tensor& a, const Tensor& b, double tol) {
  if (!a.defined() || !b.defined()) return fmt::format("{} against {}", a.str(), b.str());
  if (a.shape() != b.shape()) return fmt::format("shape {} against {}", a.shape().str(), b.shape().str());
  double scale = 1, worst = -1;
  int64_t place = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = element(a, i), y = element(b, i);
    const bool equal = x == y || (std::isnan(x) && std::isnan(y));  // infinities have no difference
    const double difference = equal ? 0 : std::isfinite(x - y) ? std::fabs(x - y) : HUGE_VAL;
    if (std::isfinite(y)) scale = std::max(scale, std::fabs(y));
    if (difference > worst) worst = difference, place = i;
  }
  if (worst <= tol * scale) return "";
  return fmt::format("{} is {:.9g} against {:.9g}", place_text(a.shape(), place), element(a, place), element(b, place));
}

std::string check_gradient(const OperatorDef& def, const Feeds& feeds, const std::vector<std::string>& wrt, double tol,
                           double step, const std::vector<std::string>& outputs) {
  const GradientCheck check(def, feeds, outputs);
  const std::vector<Tensor> together = check.analytic(wrt);
  for (size_t k = 0; k < wrt.size(); ++k) {
    if (!all_finite(together[k])) return fmt::format("gradient of {} has elements that are not numbers", wrt[k]);
    const std::string wrong = compare(together[k], check.numeric(wrt[k], step), tol);
    if (!wrong.empty()) return fmt::format("gradient of {} (derivative against differences): {}", wrt[k], wrong);
    const std::string differs = compare(check.analytic({wrt[k]})[0], together[k], 1e-12);
    if (!differs.empty()) return fmt::format("gradient of {} (alone against together): {}", wrt[k], differs);
  }
  return "";
}

}  // namespace stepnet::testing
