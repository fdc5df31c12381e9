#include "core/gradcheck/runs.h"

#include <algorithm>
#include <limits>
#include <ostream>
#include <set>

#include "core/net/dataflow.h"
#include "core/operator/in_place.h"
#include "stepnet/op_spec.h"
#include "stepnet/random.h"

namespace stepnet {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor random_weights(const Shape& shape, uint64_t key) {
  Tensor weights = Tensor::empty(DType::float64, shape);
  for (int64_t i = 0; i < shape.size(); ++i) weights.data<double>()[i] = random_normal(key, static_cast<uint64_t>(i));
  return weights;
}

// A copy on the CPU.
Tensor float64_output(const Workspace& workspace, const std::string& name) {
  const Tensor& value = workspace.fetch(name);
  require(value.dtype() == DType::float64, "\"{}\" is {}, but gradients are checked in double", name, value.str());
  return copied_to(value, {});
}

// Forward and backward operators, each as a net of the whole one's name, which random draws depend on.
struct Halves {
  NetDef forward, backward;

  Halves(const NetDef& both, int first_backward) : forward(both), backward(both) {
    forward.mutable_op()->DeleteSubrange(first_backward, both.op_size() - first_backward);
    backward.mutable_op()->DeleteSubrange(0, first_backward);
    for (NetDef* half : {&forward, &backward}) half->clear_external_output();
    backward.clear_external_input();
  }
};

Tensor* float64_tensor(const Workspace& workspace, const std::string& name) {
  Blob* blob = name.empty() ? nullptr : workspace.find(name);
  const bool is = blob && blob->is_tensor() && !blob->empty() && blob->tensor().dtype() == DType::float64;
  return is ? &blob->tensor() : nullptr;
}

void fill_with_nan(Tensor& tensor) {
  if (!tensor.raw()) return;
  Tensor nan = Tensor::empty(DType::float64, tensor.shape());
  std::ranges::fill(nan.span<double>(), kNaN);
  tensor.copy_from(nan);
  tensor.mark_written();
}

// All forward values but those that the backward pass says it reads, and what shares their bytes.
void spoil_values_not_kept(const Workspace& workspace, const std::set<std::string>& names,
                           const std::set<std::string>& kept) {
  for (const std::string& name : names) {
    Tensor* value = float64_tensor(workspace, name);
    if (!value || kept.count(name) > 0) continue;
    const bool shared = std::any_of(kept.begin(), kept.end(), [&](const std::string& other) {
      const Tensor* needed = float64_tensor(workspace, other);
      return needed && needed->shares_storage(*value);
    });
    if (!shared) fill_with_nan(*value);
  }
}

Tensor dense_rows(const Tensor& indices, const Tensor& values, const Shape& shape) {
  Tensor dense = Tensor::zeros(DType::float64, shape);
  const int64_t size = shape.size_between(1, shape.rank());
  for (int64_t n = 0; n < indices.size(); ++n) {
    const int64_t row =
        indices.dtype() == DType::int32 ? int64_t{indices.data<int32_t>()[n]} : indices.data<int64_t>()[n];
    require(row >= 0 && row < shape[0], "the sparse gradient has row {} of {}", row, shape.str());
    for (int64_t j = 0; j < size; ++j) dense.data<double>()[row * size + j] += values.data<double>()[n * size + j];
  }
  return dense;
}

// Tensors that backward operators write, that are no results and that nobody reads.
std::vector<std::string> unread(const NetDef& backward, const GradientResult& result, const Workspace& workspace) {
  std::set<std::string> read;
  for (const auto& [blob, name] : result.gradients) read.insert({name.dense, name.indices, name.values});
  for (const OperatorDef& op : backward.op()) read.insert(op.input().begin(), op.input().end());
  std::vector<std::string> names;
  for (const std::string& name : written_names(backward))
    if (!name.empty() && read.count(name) == 0 && workspace.find(name)->is_tensor()) names.push_back(name);
  return names;
}

bool checks_gradient_of(const GradientSubject& subject, const OperatorDef& op, const OpSpec& spec,
                        const std::string& declared) {
  const int i = spec.input_index(declared);
  return i >= 0 && i < op.input_size() && std::ranges::count(subject.inputs, op.input(i)) > 0;
}

// The subject's one operator, with output `out` in place of a copy of input `in`.
GradientSubject moved_in_place(const GradientSubject& subject, int in, int out) {
  GradientSubject moved = subject;
  OperatorDef op = subject.net.op(0);
  const std::string input = op.input(in), output = op.output(out), copy = "copy_of_" + input;
  op.set_input(in, copy);
  op.set_output(out, copy);
  OperatorDef& copying = *moved.net.mutable_op(0);
  copying.Clear();
  copying.set_type(op_with_role(Role::copy).type);
  copying.add_input(input);
  copying.add_output(copy);
  *moved.net.add_op() = op;
  std::ranges::replace(moved.outputs, output, copy);
  return moved;
}

}  // namespace

bool is_between_slopes(const SideSlopes& near, const SideSlopes& wide, double derivative, double slack) {
  const bool stay_apart = near.apart() > slack && near.apart() > wide.apart() / 2;
  return stay_apart && derivative >= std::min(near.above, near.below) - slack &&
         derivative <= std::max(near.above, near.below) + slack;
}

void run_once(Net& net, uint64_t seed, bool keep) {
  std::ostream nowhere(nullptr);
  RunContext context;
  context.seed = seed;
  context.keep_values = keep;
  context.out = &nowhere;
  net.set_runs(0);
  net.run(context);
}

void run_once(const NetDef& net, Workspace& workspace, uint64_t seed) {
  Net bound(net, workspace);
  run_once(bound, seed);
}

Differentiated differentiate(const GradientSubject& subject, const std::vector<std::string>& inputs) {
  Differentiated d{subject.net, {}};
  d.net.clear_external_input();  // a net that lists some of its inputs must list all
  for (const auto& feed : subject.feeds) d.net.add_external_input(feed.first);
  GradientRequest request;
  for (const std::string& output : subject.outputs) {
    request.targets.emplace_back(output, given_gradient(output));
    d.net.add_external_input(given_gradient(output));
  }
  request.wanted = {inputs.begin(), inputs.end()};
  d.result = add_gradient_operators(d.net, request);
  return d;
}

Tensor gradient_value(const Workspace& workspace, const GradientName& name, const Shape& shape) {
  if (!name.is_sparse()) return float64_output(workspace, name.dense);
  return dense_rows(copied_to(workspace.fetch(name.indices), {}), float64_output(workspace, name.values), shape);
}

std::string given_gradient(const std::string& output) { return "given/" + output; }

MovedRuns::MovedRuns(const GradientSubject& subject, uint64_t seed) : subject_(subject), seed_(seed) {
  workspace_.confine(subject.files);
  for (const auto& [name, value] : subject.feeds) feed(name);
  for (const std::string& name : written_names(subject.net))
    if (subject.feeds.count(name) > 0) overwritten_.push_back(name);
  net_ = std::make_unique<Net>(subject.net, workspace_);
  run_once(*net_, seed_);
  uint64_t key = seed_ << 16;
  for (const std::string& output : subject.outputs)
    weights_[output] = random_weights(float64_output(workspace_, output).shape(), ++key);
}

void MovedRuns::feed(const std::string& name) {
  workspace_.tensor(name) = copied_to(subject_.feeds.at(name), subject_.device);
}

std::vector<Tensor> MovedRuns::at(const std::string& input, const std::function<void(std::span<double>)>& move) {
  for (const std::string& name : overwritten_) feed(name);
  Tensor moved = subject_.feeds.at(input).clone();
  move(moved.span<double>());
  workspace_.tensor(input) = copied_to(moved, subject_.device);
  std::vector<Tensor> values = run();
  feed(input);
  return values;
}

std::vector<Tensor> MovedRuns::run() {
  run_once(*net_, seed_);
  std::vector<Tensor> values;
  for (const std::string& output : subject_.outputs) values.push_back(float64_output(workspace_, output));
  return values;
}

double MovedRuns::difference(const std::vector<Tensor>& above, const std::vector<Tensor>& below) const {
  double sum = 0;
  for (size_t k = 0; k < above.size(); ++k) {
    const auto w = weights_.at(subject_.outputs[k]).span<double>();
    const auto a = above[k].span<double>(), b = below[k].span<double>();
    require(a.size() == w.size() && b.size() == w.size(),
            "the shape of \"{}\" depends on the values of what it is made of", subject_.outputs[k]);
    for (size_t i = 0; i < w.size(); ++i) sum += w[i] * (a[i] - b[i]);
  }
  return sum;
}

GradientRun run_gradients(const GradientSubject& subject, const NamedTensors& weights, uint64_t seed,
                          const std::vector<std::string>& inputs) {
  const Differentiated d = differentiate(subject, inputs);
  const Halves halves(d.net, d.result.first_gradient_op);
  Workspace workspace;
  workspace.confine(subject.files);
  auto feed = [&] {
    for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = copied_to(value, subject.device);
    for (const auto& [name, value] : weights) workspace.tensor(given_gradient(name)) = copied_to(value, subject.device);
  };
  feed();
  Net forward(halves.forward, workspace);
  run_once(forward, seed, true);
  Net backward(halves.backward, workspace);
  run_once(backward, seed);
  std::set<std::string> written = written_names(d.net);
  for (const std::string& name : written)
    if (Tensor* value = float64_tensor(workspace, name)) fill_with_nan(*value);
  feed();
  run_once(forward, seed, true);
  std::set<std::string> values = written_names(halves.forward);
  for (const auto& feed_value : subject.feeds) values.insert(feed_value.first);
  spoil_values_not_kept(workspace, values, d.result.kept);
  run_once(backward, seed);
  GradientRun run{{}, unread(halves.backward, d.result, workspace), {}};
  for (const OperatorDef& op : d.net.op()) run.operators.insert(op.type());
  for (const std::string& input : inputs) {
    const auto found = d.result.gradients.find(input);
    if (found != d.result.gradients.end() && found->second.defined())
      run.gradients[input] = gradient_value(workspace, found->second, subject.feeds.at(input).shape());
  }
  return run;
}

GradientSubject gradients_as_subject(const GradientSubject& subject, const NamedTensors& weights,
                                     std::vector<std::string>* of) {
  Differentiated d = differentiate(subject, subject.inputs);
  GradientSubject second{std::move(d.net), subject.feeds, {}, subject.inputs, subject.device, subject.files};
  for (const auto& [output, value] : weights) {
    second.feeds[given_gradient(output)] = value;
    second.inputs.push_back(given_gradient(output));
  }
  for (const std::string& input : subject.inputs) {
    const auto found = d.result.gradients.find(input);
    if (found == d.result.gradients.end() || found->second.is_sparse() || !found->second.defined()) continue;
    const std::string& gradient = found->second.dense;
    // One that is given itself is made by no operator, and one may be that of several inputs.
    if (second.feeds.count(gradient) > 0 || std::ranges::count(second.outputs, gradient) > 0) continue;
    second.outputs.push_back(gradient);
    if (of) of->push_back(input);
  }
  return second;
}

std::string given_tangent(const std::string& input) { return "direction/" + input; }

Tensor direction_of(const GradientSubject& subject, const std::string& input, uint64_t seed, int number) {
  return random_weights(subject.feeds.at(input).shape(), random_key(seed, "direction", input, number, 0));
}

GradientSubject tangents_as_subject(const GradientSubject& subject, const std::vector<std::string>& inputs,
                                    uint64_t seed, std::vector<std::string>* of) {
  GradientSubject moved = subject;
  moved.outputs.clear();
  TangentRequest request;
  request.wanted = {subject.outputs.begin(), subject.outputs.end()};
  moved.net.clear_external_output();
  for (const std::string& input : inputs) {
    request.given[input] = given_tangent(input);
    moved.feeds[given_tangent(input)] = direction_of(subject, input, seed);
    moved.inputs.push_back(given_tangent(input));
  }
  const TangentResult result = add_tangent_operators(moved.net, request);
  for (const std::string& output : subject.outputs) {
    const auto tangent = result.tangents.find(output);
    if (tangent == result.tangents.end()) continue;
    if (of) of->push_back(output);
    moved.outputs.push_back(tangent->second);
  }
  return moved;
}

double run_tangents(const GradientSubject& subject, const NamedTensors& weights, uint64_t seed,
                    const std::string& input, int number) {
  std::vector<std::string> of;
  GradientSubject moved = tangents_as_subject(subject, {input}, seed, &of);
  moved.feeds[given_tangent(input)] = direction_of(subject, input, seed, number);
  Workspace workspace;
  workspace.confine(subject.files);
  for (const auto& [name, value] : moved.feeds) workspace.tensor(name) = copied_to(value, subject.device);
  Net net(moved.net, workspace);
  run_once(net, seed);
  double sum = 0;
  for (size_t k = 0; k < of.size(); ++k) {
    const Tensor tangent = float64_output(workspace, moved.outputs[k]);
    const Tensor& w = weights.at(of[k]);
    require(tangent.shape() == w.shape(), "the tangent of {} \"{}\" is {}", w.shape(), of[k], tangent);
    for (int64_t i = 0; i < w.size(); ++i) sum += w.data<double>()[i] * tangent.data<double>()[i];
  }
  return sum;
}

std::string refusal(const GradientSubject& subject, const std::string& input) {
  try {
    differentiate(subject, {input});
  } catch (const NoDependence&) {  // it is zero
  } catch (const Error& e) {
    return e.fact();
  }
  return "";
}

std::vector<std::pair<std::string, GradientSubject>> in_place_subjects(const GradientSubject& subject) {
  std::vector<std::pair<std::string, GradientSubject>> subjects;
  if (subject.net.op_size() != 1) return subjects;
  const OperatorDef& op = subject.net.op(0);
  const OpSpec& spec = op_spec(op.type());
  if (spec.random) return subjects;  // what is drawn depends on the output's name
  for (int in = 0; in < op.input_size(); ++in)
    for (int out = 0; out < op.output_size(); ++out) {
      const InPlaceRule* rule = in_place_rule(spec, in, out);
      if (!rule || rule->enforced) continue;
      if (std::ranges::count(op.input(), op.input(in)) > 1 || op.input(in).empty() || op.output(out).empty()) continue;
      const bool forbidden = std::ranges::any_of(rule->forbidden_if_wanted, [&](const std::string& name) {
        return checks_gradient_of(subject, op, spec, name);
      });
      if (forbidden) continue;
      subjects.emplace_back(op.output(out) + " in place of " + op.input(in), moved_in_place(subject, in, out));
    }
  return subjects;
}

}  // namespace stepnet
