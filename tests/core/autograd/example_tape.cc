#include "tests/core/autograd/example_tape.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/gradient_buffer.h"

namespace stepnet::autograd::testing {
namespace {

constexpr size_t kMostForAllSubsets = 6;

EagerOp::Signature signature_of(const OperatorDef& def) {
  EagerOp::Signature s{def.type(), {}, {}, {def.arg().begin(), def.arg().end()}, {}};
  for (const std::string& in : def.input()) s.inputs.push_back(!in.empty());
  for (const std::string& out : def.output()) {
    s.outputs.push_back(!out.empty());
    const auto in = std::find(def.input().begin(), def.input().end(), out);
    s.in_place.push_back(out.empty() || in == def.input().end() ? -1 : static_cast<int>(in - def.input().begin()));
  }
  return s;
}

}  // namespace

Variable interior(Tensor value) {
  auto source = std::make_shared<Source>(value);
  return variable_of(std::move(value), std::move(source), 0);
}

ExampleTape::ExampleTape(GradientSubject subject)
    : subject_(std::move(subject)), signature_(signature_of(def())), op_(EagerOp::get(signature_)) {
  for (int i = 0; i < def().input_size(); ++i)
    if (std::ranges::count(subject_.inputs, name(i)) > 0) differentiable_.push_back(i);
}

ExampleTape ExampleTape::in_place(int input, int output) const {
  ExampleTape other = *this;
  other.signature_.in_place[output] = input;
  other.op_ = EagerOp::get(other.signature_);
  return other;
}

int ExampleTape::overwritten_by(int input) const {
  const auto found = std::ranges::find(signature_.in_place, input);
  return found == signature_.in_place.end() ? -1 : static_cast<int>(found - signature_.in_place.begin());
}

Mask ExampleTape::only(const std::vector<int>& inputs) const {
  Mask mask(def().input_size(), false);
  for (const int i : inputs) mask[i] = true;
  return mask;
}

std::vector<Mask> ExampleTape::subsets() const {
  const size_t count = differentiable_.size();
  std::vector<Mask> all;
  for (uint64_t bits = 0; count <= kMostForAllSubsets && bits < (uint64_t{1} << count); ++bits) {
    Mask mask(def().input_size(), false);
    for (size_t i = 0; i < count; ++i) mask[differentiable_[i]] = (bits >> i) & 1;
    all.push_back(std::move(mask));
  }
  if (!all.empty()) return all;
  all = {only({}), only(differentiable_)};
  for (const int i : differentiable_) {
    all.push_back(only({i}));
    all.push_back(only(differentiable_));
    all.back()[i] = false;
  }
  return all;
}

std::vector<Variable> ExampleTape::make_inputs(const Mask& needs, const NamedTensors& values) const {
  std::vector<Variable> inputs;
  for (int i = 0; i < def().input_size(); ++i) {
    if (name(i).empty()) {
      inputs.emplace_back();
    } else {
      Tensor value = values.at(name(i)).clone();
      inputs.push_back(needs[i] ? interior(std::move(value)) : Variable(std::move(value)));
    }
  }
  return inputs;
}

TapeRun ExampleTape::run(const Mask& needs, const NamedTensors& values) const {
  return run_on(make_inputs(needs, values));
}

TapeRun ExampleTape::run_on(std::vector<Variable> inputs) const {
  TapeRun run;
  run.inputs = std::move(inputs);
  for (const Variable& v : run.inputs) run.edges.push_back(v.gradient_edge());
  set_random_state({kSeed, 0});
  run.outputs = autograd::run(*op_, run.inputs);
  return run;
}

GradientProgram ExampleTape::program(const Mask& wanted, const Mask& present) const {
  const BoundOp& bound = op_->bound();
  return record_gradient(*bound.spec, bound.def, bound.args.get(), wanted, present);
}

std::vector<Variable> tape_gradients(const ExampleTape& tape, const TapeRun& run, const std::vector<Variable>& weights,
                                     const std::vector<int>& wanted, bool recording) {
  std::vector<Edge> roots, edges;
  GradOptions options{.grad_outputs = {}, .create_graph = recording, .keep_graph = true, .allow_unused = true};
  for (size_t k = 0; k < weights.size(); ++k) {
    const auto& names = tape.def().output();
    const auto place = std::find(names.begin(), names.end(), tape.subject().outputs[k]) - names.begin();
    roots.push_back(run.outputs[place].gradient_edge());
    options.grad_outputs.emplace_back(weights[k]);
  }
  for (const int i : wanted) edges.push_back(run.edges[i]);
  const Gradients arrived = grad_edges(roots, edges, options);
  std::vector<Variable> dense;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const TensorType& type = edges[k].node->outputs()[0];
    dense.push_back(arrived[k].is_sparse() ? make_dense(arrived[k], type)
                    : arrived[k].defined() ? arrived[k].dense
                                           : filled(type, {}, 0));
  }
  return dense;
}

std::vector<Variable> random_weights(const ExampleTape& tape, bool need_gradients) {
  const MovedRuns runs(tape.subject(), ExampleTape::kSeed);
  std::vector<Variable> weights;
  for (const std::string& output : tape.subject().outputs) {
    const Tensor& w = runs.weights().at(output);
    weights.push_back(need_gradients ? interior(w.clone()) : Variable(w));
  }
  return weights;
}

std::string difference(const Tensor& a, const Tensor& b, double tolerance) {
  if (a.shape() != b.shape()) return fmt::format("{} against {}", a, b);
  double scale = 1;
  for (const double v : b.span<double>()) scale = std::max(scale, std::fabs(v));
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if (!(std::fabs(x - y) <= tolerance * scale))
      return fmt::format("{}: {} against {}", place_text(a.shape(), i), x, y);
  }
  return "";
}

}  // namespace stepnet::autograd::testing
