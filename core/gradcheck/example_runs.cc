#include "core/gradcheck/example_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/error.h"
#include "core/tensor/half.h"

namespace stepnet {
namespace {

template <class Fn>
bool with_floating(DType dtype, const Fn& fn) {
  if (dtype == DType::float32) return fn(float{}), true;
  if (dtype == DType::float64) return fn(double{}), true;
  return with_half(dtype, fn);
}

// The same, but floating elements are NaN; on the CPU.
Tensor with_nan(const Tensor& given) {
  Tensor value = copied_to(given, {});
  with_floating(value.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::ranges::fill(value.span<T>(), T(std::numeric_limits<float>::quiet_NaN()));
  });
  return value;
}

Tensor* tensor_of(Workspace& workspace, const std::string& name) {
  Blob* blob = name.empty() ? nullptr : workspace.find(name);
  return blob && blob->is_tensor() && !blob->empty() ? &blob->tensor() : nullptr;
}

}  // namespace

Tensor in_type(DType dtype, const Tensor& value) {
  if (value.dtype() == dtype || !is_floating(value.dtype())) return value.clone();
  Tensor converted = Tensor::empty(dtype, value.shape());
  with_floating(value.dtype(), [&](auto from) {
    with_floating(dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      std::ranges::transform(value.span<From>(), converted.data<To>(), [](From v) { return static_cast<To>(v); });
    });
  });
  return converted;
}

ForwardRuns::ForwardRuns(const GradientSubject& subject, DType dtype, uint64_t seed, Device device)
    : subject_(subject), dtype_(dtype), seed_(seed), device_(device) {
  feed();
  NetDef net = subject.net;
  if (device.kind == DeviceKind::cuda) net.mutable_device_option()->set_device_type(CUDA);
  net_ = std::make_unique<Net>(net, workspace_);
}

NamedTensors ForwardRuns::run() {
  std::ostringstream printed;
  RunContext context;
  context.seed = seed_;
  context.out = &printed;
  net_->set_runs(0);
  net_->run(context);
  NamedTensors values;
  for (const OperatorDef& op : subject_.net.op())
    for (const std::string& name : op.output())
      if (const Tensor* value = tensor_of(workspace_, name)) values[name] = copied_to(*value, {});
  return values;
}

NamedTensors ForwardRuns::run_over_nan() {
  for (const OperatorDef& op : subject_.net.op())
    for (const std::string& name : op.output())
      if (Tensor* value = tensor_of(workspace_, name)) value->copy_from(with_nan(*value));
  feed();
  return run();
}

void ForwardRuns::feed() {
  for (const auto& [name, value] : subject_.feeds) workspace_.tensor(name) = copied_to(in_type(dtype_, value), device_);
}

std::string difference(const Tensor& a, const Tensor& b, double tolerance) {
  if (a.shape() != b.shape()) return fmt::format("{} against {}", a.str(), b.str());
  if (a.dtype() != b.dtype()) return fmt::format("{} against {}", a.str(), b.str());
  if (a.dtype() == DType::string) return "";
  if (!is_floating(a.dtype())) return std::equal(a.raw(), a.raw() + a.bytes(), b.raw()) ? "" : "some element";
  const Tensor x = in_type(DType::float64, a), y = in_type(DType::float64, b);
  double scale = 1;
  for (const double v : y.span<double>())
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  for (int64_t i = 0; i < x.size(); ++i) {
    const double p = x.data<double>()[i], q = y.data<double>()[i];
    if (p == q || (std::isnan(p) && std::isnan(q)) || std::fabs(p - q) <= tolerance * scale) continue;
    return fmt::format("{}: {} against {}", place_text(x.shape(), i), p, q);
  }
  return "";
}

bool has_side_effects(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) {
    const OpSpec& spec = op_spec(op.type());
    return spec.side_effect || spec.blob_kernel;
  });
}

std::set<std::string> objects_of(const NetDef& net) {
  std::set<std::string> names;
  for (const OperatorDef& op : net.op())
    for (int o = 0; o < op.output_size(); ++o)
      if (op_spec(op.type()).output_spec(o)->object) names.insert(op.output(o));
  return names;
}

}  // namespace stepnet
