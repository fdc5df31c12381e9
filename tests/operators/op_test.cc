// Running one operator, reproducible tensors, and comparing them.
#include "tests/operators/op_test.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "core/gradcheck/examples.h"
#include "stepnet/gradient_check.h"
#include "stepnet/random.h"
#include "stepnet/tensor.h"

namespace stepnet::testing {

Device test_device() {
  static const Device device = [] {
    const char* text = std::getenv("STEPNET_TEST_DEVICE");
    if (!text || std::string_view(text) == "cpu") return Device{};
    require(std::string_view(text) == "cuda", "STEPNET_TEST_DEVICE is {}, neither cpu nor cuda", text);
    return Device{DeviceKind::cuda, 0};
  }();
  return device;
}

void use_test_device(NetDef& net) {
  if (test_device().kind == DeviceKind::cuda) net.mutable_device_option()->set_device_type(CUDA);
}

namespace {

void feed_all(const Feeds& feeds, Workspace& workspace) {
  for (const auto& [name, value] : feeds) workspace.tensor(name) = copied_to(value, test_device());
}

NetDef net_of(const OperatorDef& def, const Feeds& feeds) {
  NetDef net;
  net.set_name("test");
  for (const auto& feed : feeds) net.add_external_input(feed.first);
  *net.add_op() = def;
  use_test_device(net);
  return net;
}

RunContext context_of(uint64_t seed) {
  RunContext run;
  run.seed = seed;
  return run;
}

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
    outputs.push_back(blob && blob->is_tensor() && !blob->empty() ? copied_to(blob->tensor(), {}) : Tensor());
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

std::string compare(const Tensor& a, const Tensor& b, double tol, ErrorScale scale) {
  if (!a.defined() || !b.defined()) return fmt::format("{} against {}", a.str(), b.str());
  if (a.shape() != b.shape()) return fmt::format("shape {} against {}", a.shape().str(), b.shape().str());
  double largest = 1, worst = 0;
  for (int64_t i = 0; i < b.size() && scale == ErrorScale::tensor; ++i)
    if (const double y = std::fabs(element(b, i)); std::isfinite(y)) largest = std::max(largest, y);
  int64_t place = -1;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = element(a, i), y = element(b, i);
    if (x == y) continue;  // infinities have no difference
    const double size = std::max(largest, scale == ErrorScale::element ? std::fabs(y) : 0);
    const double error = std::isfinite(x - y) ? std::fabs(x - y) / size : HUGE_VAL;
    if (error > tol && error > worst) worst = error, place = i;
  }
  if (place < 0) return "";
  return fmt::format("{} is {:.9g} against {:.9g}", place_text(a.shape(), place), element(a, place), element(b, place));
}

std::string compare(const Tensor& a, const Tensor& b, double tol) { return compare(a, b, tol, ErrorScale::element); }

std::string check_gradient(const OperatorDef& def, const Feeds& feeds, const std::vector<std::string>& wrt, double tol,
                           double step, const std::vector<std::string>& outputs) {
  GradientSubject subject{net_of(def, feeds), {feeds.begin(), feeds.end()}, outputs, wrt};
  subject.device = test_device();
  if (outputs.empty()) subject.outputs = floating_outputs(subject, 1);
  return check_gradients(subject, {.tolerance = tol, .step = step}).str();
}

}  // namespace stepnet::testing
