#include "core/gradcheck/half_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/gradcheck/example_runs.h"
#include "core/gradcheck/op_example.h"
#include "core/io/files.h"
#include "core/operator/op_devices.h"
#include "core/tensor/half.h"

namespace stepnet {
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
  const NamedTensors outputs = ForwardRuns(subject, half, seed, device).run();
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
