#include "tests/core/passes/jacobian_rows.h"

#include <algorithm>
#include <cmath>

#include "core/gradcheck/runs.h"
#include "core/net/dataflow.h"
#include "stepnet/error.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {
namespace {

void feed(const GradientSubject& subject, Workspace& workspace) {
  workspace.confine(subject.files);
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = value.clone();
}

std::map<std::string, TensorType> types_of(const GradientSubject& subject) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, value] : subject.feeds) {
    types[name] = TensorType::of(value.dtype(), value.shape());
    types[name].value = &value;
  }
  return types;
}

}  // namespace

std::map<std::string, Tensor> rows_one_by_one(const GradientSubject& subject, const std::string& output,
                                              const std::vector<std::string>& inputs) {
  GradientSubject of = subject;
  of.outputs = {output};
  const Differentiated d = differentiate(of, inputs);
  Workspace first;
  feed(subject, first);
  run_once(subject.net, first, 1);
  const Shape shape = first.fetch(output).shape();
  std::map<std::string, Tensor> rows;
  for (const std::string& input : inputs)
    rows[input] = Tensor::zeros(DType::float64, subject.feeds.at(input).shape().prepend(shape.size()));
  for (int64_t i = 0; i < shape.size(); ++i) {
    Workspace workspace;
    feed(subject, workspace);
    Tensor& given = workspace.tensor(given_gradient(output)) = Tensor::zeros(DType::float64, shape);
    given.data<double>()[i] = 1;
    run_once(d.net, workspace, 1);
    for (const std::string& input : inputs) {
      const auto found = d.result.gradients.find(input);
      if (found == d.result.gradients.end() || !found->second.defined()) continue;
      const Tensor row = gradient_value(workspace, found->second, subject.feeds.at(input).shape());
      std::copy_n(row.data<double>(), row.size(), rows[input].data<double>() + i * row.size());
    }
  }
  return rows;
}

std::string row_difference(const Tensor& made, const Tensor& rows) {
  if (made.dtype() != rows.dtype() || !(made.shape() == rows.shape()))
    return fmt::format("it is {}, not {}", made.str(), rows.str());
  double largest = 1;
  for (const double v : rows.span<double>()) largest = std::isfinite(v) ? std::max(largest, std::fabs(v)) : largest;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const double a = made.data<double>()[i], b = rows.data<double>()[i];
    if (a != b && !(std::isnan(a) && std::isnan(b)) && !(std::fabs(a - b) <= 1e-12 * largest))
      return fmt::format("element {} of {} is {}, not {}", i, made.shape(), a, b);
  }
  return "";
}

namespace {

std::string compare_output(const GradientSubject& subject, const std::string& output, RowCounts& counts) {
  std::map<std::string, Tensor> rows;
  try {
    rows = rows_one_by_one(subject, output, subject.inputs);
  } catch (const Error&) {
    ++counts.refused;
    return "";
  }
  NetDef net = subject.net;
  net.clear_external_input();
  const auto made =
      add_jacobian_operators(net, {.output = output, .inputs = subject.inputs, .types = types_of(subject)});
  Workspace workspace;
  feed(subject, workspace);
  run_once(net, workspace, 1);
  for (const auto& [input, name] : made) {
    const std::string wrong = row_difference(workspace.fetch(name), rows.at(input));
    if (!wrong.empty())
      return fmt::format("of {} by {}: {}\n{}", output, input, wrong, net.op_size() < 100 ? net.DebugString() : "");
    ++counts.jacobians;
  }
  return "";
}

}  // namespace

std::string compare_jacobians(const GradientSubject& given, RowCounts& counts) {
  GradientSubject subject = given;
  const std::set<std::string> written = written_names(subject.net);
  std::erase_if(subject.inputs, [&](const std::string& input) { return written.count(input) > 0; });
  if (subject.inputs.empty()) return "";
  for (const std::string& output : subject.outputs) {
    try {
      const std::string wrong = compare_output(subject, output, counts);
      if (!wrong.empty()) return wrong;
    } catch (const Error& e) {
      return fmt::format("of {}: {}", output, e.what());
    }
  }
  return "";
}

JacobianRequest request_of(const std::string& output, const std::vector<std::string>& inputs,
                           const std::map<std::string, Shape>& shapes, DType dtype) {
  JacobianRequest request{.output = output, .inputs = inputs, .types = {}};
  for (const auto& [name, shape] : shapes) request.types[name] = TensorType::of(dtype, shape);
  return request;
}

const Lines kLayers = {"s = FC(x, W, b)", "h = Tanh(s)", "z = FC(h, V, c)", "y = Softmax(z)"};

std::map<std::string, Shape> layer_shapes(int64_t outputs) {
  return {{"x", {2, 5}}, {"W", {4, 5}}, {"b", {4}}, {"V", {outputs, 4}}, {"c", {outputs}}};
}

}  // namespace stepnet::testing
