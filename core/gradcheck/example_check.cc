#include "core/gradcheck/example_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/gradcheck/example_runs.h"
#include "core/gradcheck/op_example.h"
#include "core/gradcheck/runs.h"
#include "core/io/files.h"

namespace stepnet {
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
    for (const auto& [name, value] : ForwardRuns(subject, dtype, options.seed, subject.device).run()) {
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

}  // namespace stepnet
