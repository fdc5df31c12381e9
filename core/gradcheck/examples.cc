#include "core/gradcheck/examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "core/gradcheck/input_text.h"
#include "core/gradcheck/runs.h"
#include "core/io/files.h"
#include "core/net/expansions.h"
#include "core/operator/op_devices.h"
#include "core/operator/own_draws.h"
#include "stepnet/error.h"
#include "stepnet/half.h"
#include "stepnet/net.h"
#include "stepnet/tensor.h"
#include "stepnet/text.h"

namespace stepnet {
namespace {

std::string element_name(const ParamSpec& param, int i) { return fmt::format("{}{}", param.name, i); }

// The declared inputs that were given, in their order; those left out at the end are absent.
void add_inputs(const OpSpec& spec, const std::map<std::string, Tensor>& values, OperatorDef& op) {
  std::set<std::string> used;
  for (const ParamSpec& p : spec.inputs) {
    if (p.variadic) {
      for (int i = 0; values.count(element_name(p, i)) > 0; ++i) op.add_input(*used.insert(element_name(p, i)).first);
      continue;
    }
    require(p.optional || values.count(p.name) > 0, "{} needs --input {}=SIZE,SIZE,... ({})", spec.type, p.name, p.doc);
    op.add_input(values.count(p.name) > 0 ? *used.insert(p.name).first : "");
  }
  while (op.input_size() > 0 && op.input(op.input_size() - 1).empty()) op.mutable_input()->RemoveLast();
  for (const auto& [name, value] : values)
    require(used.count(name) > 0, "{} has no input \"{}\"; the elements of a list are named NAME0, NAME1, ...",
            spec.type, name);
}

void add_outputs(const OpSpec& spec, int several, OperatorDef& op) {
  for (const ParamSpec& p : spec.outputs)
    for (int i = 0; i < (p.variadic ? std::max(several, p.at_least) : 1); ++i)
      op.add_output(p.variadic ? element_name(p, i) : spec.input_index(p.name) < 0 ? p.name : p.name + "_out");
  for (const InPlaceRule& rule : spec.in_place)
    if (rule.enforced && spec.input_index(rule.in) < op.input_size())
      op.set_output(spec.output_index(rule.out), op.input(spec.input_index(rule.in)));
}

bool is_double(const GradientSubject& subject, const std::string& name) {
  const auto value = subject.feeds.find(name);
  return value != subject.feeds.end() && value->second.dtype() == DType::float64;
}

std::map<std::string, Tensor> values_of(const std::vector<std::string>& texts, uint64_t seed) {
  std::map<std::string, Tensor> values;
  for (const std::string& text : texts) {
    const InputText input = parse_input("an example's input", text, DType::float64);
    values[input.name] = input_value(input, seed + values.size());
  }
  return values;
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

GradientSubject net_subject(const OpSpec& spec, const OpExample& example, uint64_t seed, const std::string& folder) {
  GradientSubject subject;
  subject.net = parse_net_text(replaced(example.net, "$FOLDER", folder), "example of " + spec.type);
  expand_net(subject.net);
  subject.feeds = values_of(example.inputs, seed);
  subject.outputs = example.losses;
  if (subject.outputs.empty()) return subject;
  for (const auto& feed : subject.feeds)
    if (is_double(subject, feed.first)) subject.inputs.push_back(feed.first);
  return subject;
}

}  // namespace

bool has_derivative(const OpSpec& spec, const std::string& input) {
  return spec.whole_derivative || spec.composed || std::ranges::any_of(spec.derivatives, [&](const DerivativeSpec& d) {
           return std::ranges::count(d.inputs, input) > 0;
         });
}

std::vector<std::string> floating_outputs(const GradientSubject& subject, uint64_t seed) {
  Workspace workspace;
  const Device device = device_of(OperatorDef(), subject.net);
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = copied_to(value, device);
  run_once(subject.net, workspace, seed);
  std::vector<std::string> names;
  for (const std::string& name : subject.net.op(subject.net.op_size() - 1).output())
    if (const Blob* blob = name.empty() ? nullptr : workspace.find(name))
      if (blob->is_tensor() && !blob->empty() && blob->tensor().dtype() == DType::float64) names.push_back(name);
  return names;
}

void find_differentiable(GradientSubject& subject, uint64_t seed) {
  const OperatorDef& op = subject.net.op(0);
  const OpSpec& spec = op_spec(op.type());
  subject.inputs.clear();
  subject.outputs.clear();
  for (int i = 0; i < op.input_size(); ++i)
    if (is_double(subject, op.input(i)) && has_derivative(spec, spec.input_spec(i)->name))
      subject.inputs.push_back(op.input(i));
  if (!subject.inputs.empty()) subject.outputs = floating_outputs(subject, seed);
}

GradientSubject operator_subject(const OpSpec& spec, const std::map<std::string, Tensor>& values,
                                 const std::vector<std::string>& args, int outputs, uint64_t seed) {
  GradientSubject subject{{}, values, {}, {}, {}};
  OperatorDef& op = *subject.net.add_op();
  op.set_type(spec.type);
  for (const std::string& text : args) *op.add_arg() = parse_arg(spec, text);
  add_inputs(spec, values, op);
  add_outputs(spec, outputs, op);
  find_differentiable(subject, seed);
  return subject;
}

GradientSubject example_subject(const OpSpec& spec, const OpExample& example, uint64_t seed,
                                const std::string& folder) {
  try {
    if (!example.net.empty()) return net_subject(spec, example, seed, folder);
    return operator_subject(spec, values_of(example.inputs, seed), example.args, example.outputs, seed);
  } catch (Error& e) {
    e.add("in", "an example of " + spec.type);
    throw;
  }
}

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

namespace {

constexpr double kFloatError = 1e-4;  // of an output's largest element: float has 24 bits, and sums lose some
constexpr double kSumError = 1e-12, kDeviceError = 1e-12;

bool runs_in(const OpSpec& spec, DType dtype) {
  return std::ranges::any_of(spec.kernels, [&](const Kernel& kernel) {
    return kernel.device == DeviceKind::cpu && (kernel.dtype == dtype || kernel.dtype == DType::undefined);
  });
}

void check_forward(const OpSpec& spec, const GradientSubject& subject, uint64_t seed, GradientReport& report) {
  ForwardRuns runs(subject, DType::float64, seed);
  const NamedTensors values = runs.run();
  for (const OperatorDef& op : subject.net.op()) report.operators.insert(op.type());
  if (has_side_effects(subject.net)) return;
  const NamedTensors again = runs.run_over_nan();
  for (const auto& [name, value] : values)
    if (const std::string differs = difference(again.at(name), value, 0); !differs.empty())
      report.broken.push_back(fmt::format("\"{}\" is not written whole, or not the same twice, at {}", name, differs));
  if (!runs_in(spec, DType::float32) || subject.net.op_size() != 1) return;
  for (const auto& [name, value] : ForwardRuns(subject, DType::float32, seed).run())
    if (const std::string differs =
            difference(in_type(DType::float64, value), in_type(DType::float64, values.at(name)), kFloatError);
        !differs.empty())
      report.broken.push_back(fmt::format("\"{}\" of float inputs is not that of double ones at {}", name, differs));
}

// `on_cpu` is the same subject with another folder for its files.
void check_device(const OpSpec& spec, const GradientSubject& on_cpu, const GradientSubject& subject,
                  const GradientCheckOptions& options, GradientReport& report) {
  const std::set<std::string> objects = objects_of(subject.net);
  for (const auto& [dtype, error] :
       {std::pair{DType::float64, kDeviceError}, {DType::float32, options.device_float_error}}) {
    if (!runs_in(spec, dtype)) continue;
    const NamedTensors expected = ForwardRuns(on_cpu, dtype, options.seed).run();
    take_own_draws();
    const NamedTensors values = ForwardRuns(subject, dtype, options.seed, subject.device).run();
    if (take_own_draws()) continue;
    for (const auto& [name, value] : values) {
      if (objects.count(name) > 0 && !is_floating(value.dtype())) continue;
      if (const std::string differs = difference(value, expected.at(name), error); !differs.empty())
        report.broken.push_back(
            fmt::format("\"{}\" of {} inputs is not that of the CPU at {}", name, dtype_name(dtype), differs));
    }
  }
}

// The subject with input `second` read from the blob of input `first`; their values are equal.
GradientSubject with_one_blob(GradientSubject subject, const std::string& first, const std::string& second) {
  for (std::string& name : *subject.net.mutable_op(0)->mutable_input())
    if (name == second) name = first;
  subject.feeds.erase(second);
  std::erase(subject.inputs, second);
  return subject;
}

void check_shared(const GradientSubject& subject, const std::string& first, const std::string& second, uint64_t seed,
                  GradientReport& report) {
  GradientSubject equal = subject;
  equal.feeds[second] = equal.feeds[first];
  const NamedTensors weights = MovedRuns(equal, seed).weights();
  const NamedTensors apart = run_gradients(equal, weights, seed, {first, second}).gradients;
  const GradientSubject shared = with_one_blob(equal, first, second);
  const NamedTensors together = run_gradients(shared, weights, seed, {first}).gradients;
  Tensor sum = Tensor::zeros(DType::float64, subject.feeds.at(first).shape());
  for (const auto& [name, gradient] : apart)
    for (int64_t i = 0; i < sum.size(); ++i) sum.data<double>()[i] += gradient.data<double>()[i];
  const Tensor found = together.count(first) > 0 ? together.at(first) : Tensor::zeros(DType::float64, sum.shape());
  if (const std::string differs = difference(found, sum, kSumError); !differs.empty())
    report.broken.push_back(fmt::format(
        "with one blob as \"{}\" and \"{}\" the gradient is not the sum of theirs at {}", first, second, differs));
}

// The first two inputs that may be one blob.
void check_shared_inputs(const GradientSubject& subject, uint64_t seed, GradientReport& report) {
  const auto& written = subject.net.op(0).output();
  for (size_t i = 0; i < subject.inputs.size(); ++i)
    for (size_t j = i + 1; j < subject.inputs.size(); ++j) {
      const std::string &a = subject.inputs[i], &b = subject.inputs[j];
      if (subject.feeds.at(a).shape() != subject.feeds.at(b).shape()) continue;
      if (std::ranges::count(written, a) + std::ranges::count(written, b) > 0) continue;
      return check_shared(subject, a, b, seed, report);
    }
}

}  // namespace

GradientReport check_example(const OpSpec& spec, const OpExample& example, const GradientCheckOptions& options,
                             Device device) {
  const TemporaryFolder folder, second_folder;
  GradientSubject subject = example_subject(spec, example, options.seed, folder.path());
  subject.device = device;
  GradientReport report;
  if (!subject.inputs.empty() && !subject.outputs.empty()) report = check_gradients(subject, options);
  report.operators.insert(spec.type);  // one that stands for others does not run itself
  const GradientSubject again = example_subject(spec, example, options.seed, second_folder.path());
  if (device.kind != DeviceKind::cpu) {
    check_device(spec, again, subject, options, report);
    return report;
  }
  check_forward(spec, again, options.seed, report);
  // What runs a net reads inputs by names in it.
  const bool may_share = subject.net.op_size() == 1 && !has_side_effects(subject.net);
  if (!subject.inputs.empty() && may_share) check_shared_inputs(subject, options.seed, report);
  return report;
}

namespace {

// A gradient comes after a few operators, each of which rounds what it writes.
constexpr double kOutputEpsilons = 2, kGradientEpsilons = 6;

double epsilon(DType half) { return half == DType::float16 ? 0x1p-10 : 0x1p-7; }

// Floating feeds become what they are in the half type.
GradientSubject rounded(GradientSubject subject, DType half) {
  for (auto& [name, value] : subject.feeds)
    if (is_floating(value.dtype())) value = in_type(value.dtype(), in_type(half, value));
  return subject;
}

DType widest_of(const OpSpec& spec) {
  const bool has_double = has_kernel(spec, DeviceKind::cpu, DType::float64);
  return has_double || spec.kernels.empty() ? DType::float64 : DType::float32;
}

// The largest difference, relative as the tolerance is.
double largest_error(const Tensor& a, const Tensor& b) {
  double scale = 1, most = 0;
  for (const double v : b.span<double>())
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  for (int64_t i = 0; i < a.size(); ++i) {
    const double error = std::fabs(a.data<double>()[i] - b.data<double>()[i]);
    if (std::isfinite(error)) most = std::max(most, error);
  }
  return most / scale;
}

// `expected` are the same blobs in double. What the gradients' net computes again is not compared twice.
void compare(const NamedTensors& values, const NamedTensors& expected, const std::set<std::string>& left_out,
             double tolerance, GradientRow& row, GradientReport& report) {
  for (const auto& [name, value] : values) {
    if (left_out.count(name) > 0) continue;
    const Tensor wide = in_type(DType::float64, value), right = in_type(DType::float64, expected.at(name));
    const std::string differs = difference(wide, right, tolerance);
    if (!differs.empty()) report.broken.push_back(fmt::format("\"{}\" is not that of double at {}", name, differs));
    if (is_floating(value.dtype()) && wide.shape() == right.shape())
      row.error = std::max(row.error, largest_error(wide, right));
  }
}

}  // namespace

GradientReport check_in_half(const OpSpec& spec, const OpExample& example, DType half, uint64_t seed, Device device) {
  require(is_half(half), "{} is no half type", dtype_name(half));
  const TemporaryFolder folder;
  const GradientSubject exact = example_subject(spec, example, seed, folder.path());
  GradientReport report;
  report.operators.insert(spec.type);
  if (has_side_effects(exact.net)) return report;
  const GradientSubject subject = rounded(exact, half);
  const DType widest = widest_of(spec);
  std::set<std::string> left_out = objects_of(subject.net);
  take_own_draws();
  const NamedTensors outputs = ForwardRuns(subject, half, seed, device).run();
  if (take_own_draws()) return report;
  GradientRow& forward = report.rows.emplace_back(GradientRow{.input = "outputs"});
  compare(outputs, ForwardRuns(subject, widest, seed).run(), left_out, kOutputEpsilons * epsilon(half), forward,
          report);
  if (subject.inputs.empty() || subject.outputs.empty()) return report;
  const NamedTensors weights = MovedRuns(subject, seed).weights();
  const GradientSubject gradients = rounded(gradients_as_subject(subject, weights), half);
  for (const OperatorDef& op : gradients.net.op()) report.operators.insert(op.type());
  for (const auto& [name, value] : outputs) left_out.insert(name);
  GradientRow& backward = report.rows.emplace_back(GradientRow{.input = "gradients"});
  left_out.merge(objects_of(gradients.net));
  compare(ForwardRuns(gradients, half, seed, device).run(), ForwardRuns(gradients, widest, seed).run(), left_out,
          kGradientEpsilons * epsilon(half), backward, report);
  return report;
}

}  // namespace stepnet
