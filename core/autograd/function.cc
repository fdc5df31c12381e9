#include "core/autograd/function.h"

#include <algorithm>

#include "core/autograd/record.h"
#include "core/autograd/stream_order.h"
#include "core/autograd/variable_state.h"

namespace stepnet::autograd {
namespace {

int index_of(const std::vector<Variable>& variables, const Variable& variable) {
  for (size_t i = 0; i < variables.size(); ++i)
    if (variables[i].defined() && variables[i].is_same(variable)) return static_cast<int>(i);
  return -1;
}

bool share_bytes(const Variable& a, const Variable& b) {
  return a.defined() && b.defined() && a.value().shares_storage(b.value());
}

std::vector<uint64_t> versions_of(const std::vector<Variable>& variables) {
  std::vector<uint64_t> versions;
  for (const Variable& v : variables) versions.push_back(v.defined() ? v.version() : 0);
  return versions;
}

std::vector<TensorType> types_of(const std::vector<Variable>& variables) {
  std::vector<TensorType> types;
  for (const Variable& v : variables)
    types.push_back(v.defined() ? TensorType::of(v.dtype(), v.shape()) : TensorType{});
  return types;
}

}  // namespace

FunctionCall::FunctionCall(std::string name, std::vector<Variable> inputs)
    : name_(std::move(name)), inputs_(std::move(inputs)), recording_(tape_state().recording) {
  for (const Variable& v : inputs_) needs_.push_back(recording_ && v.requires_grad());
}

void FunctionCall::save(const std::string& name, const Variable& value) {
  for (const Saved& s : saved_) require(s.name != name, "two values are saved as \"{}\"", name);
  saved_.push_back({name, value});
}

void FunctionCall::overwrites(const Variable& input) {
  require(index_of(inputs_, input) >= 0, "what is overwritten must be an input");
  const NoGrad as_called(recording_);
  check_writable(input, name_, std::find(needs_.begin(), needs_.end(), true) != needs_.end());
  overwritten_.push_back(input);
}

bool FunctionCall::is_overwritten(const Variable& variable) const { return index_of(overwritten_, variable) >= 0; }

bool FunctionCall::is_constant(const Variable& output) const {
  return !is_floating(output.dtype()) || index_of(constants_, output) >= 0;
}

Variable FunctionCall::show(const Variable& output, const std::shared_ptr<FunctionNode>& node, int index) const {
  if (!output.defined()) return {};
  const bool differentiable = node && !is_constant(output);
  if (is_overwritten(output)) {
    if (differentiable)
      rebase_history(output, node, index);
    else if (recording_ && output.requires_grad())
      drop_history(output);
    return output;
  }
  const Variable shown = differentiable ? variable_of(output.value(), node, index) : Variable(output.value());
  for (const Variable& in : inputs_) {
    if (!share_bytes(in, shown)) continue;
    make_view(shown, in);
    break;
  }
  return shown;
}

void FunctionCall::check_writes(const std::vector<uint64_t>& before, const std::vector<Variable>& outputs) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Variable& in = inputs_[i];
    if (!in.defined()) continue;
    const auto is_it = [&](const Variable& v) { return share_bytes(v, in); };
    const bool said = std::any_of(overwritten_.begin(), overwritten_.end(), is_it);
    if (in.version() != before[i] && !said)
      throw Error(fmt::format("input {}, {}, was written in place without saying so", i, in.value()),
                  "call overwrites() before, and return the input");
    require(!is_overwritten(in) || index_of(outputs, in) >= 0, "input {}, {}, is overwritten, but is no output", i,
            in.value());
  }
}

std::shared_ptr<FunctionNode> Function::record(FunctionCall& call, const std::vector<Variable>& outputs,
                                               Place place) const {
  auto node = std::make_shared<FunctionNode>(spec_, gradient_edges(call.inputs()), types_of(outputs), place);
  for (const Variable& v : outputs)
    if (v.defined() && v.value().device().kind != DeviceKind::cpu) node->set_stream(stream_now(v.value().device()));
  node->data = std::move(call.data);
  for (FunctionCall::Saved& s : call.saved_) {
    FunctionNode::Saved kept{.name = std::move(s.name), .value = {}};
    if (s.value.defined()) {
      kept.value = SavedValue(s.value.value(), node.get());
      kept.output = index_of(outputs, s.value);
      if (kept.output >= 0 && call.is_constant(s.value)) kept.output = -1;
      if (kept.output < 0) kept.input = index_of(call.inputs(), s.value);
      if (kept.output < 0 && kept.input < 0) kept.edge = s.value.gradient_edge();
    }
    node->save(std::move(kept));
  }
  return node;
}

std::vector<Variable> Function::operator()(const std::vector<Variable>& inputs, Place place) const {
  try {
    for (const Variable& v : inputs)
      if (v.defined()) check_view(v);
    FunctionCall call(spec_->name, inputs);
    const std::vector<uint64_t> before = versions_of(inputs);
    std::vector<Variable> outputs;
    {
      const NoGrad no_grad;
      outputs = spec_->forward(call);
    }
    for (const Variable& v : call.overwritten_) v.state()->value.mark_written();
    call.check_writes(before, outputs);
    const auto differentiable = [&](const Variable& v) { return v.defined() && !call.is_constant(v); };
    const bool recorded = is_recorded(inputs) && std::any_of(outputs.begin(), outputs.end(), differentiable);
    const std::shared_ptr<FunctionNode> node = recorded ? record(call, outputs, place) : nullptr;
    std::vector<Variable> shown;
    for (size_t o = 0; o < outputs.size(); ++o) shown.push_back(call.show(outputs[o], node, static_cast<int>(o)));
    return shown;
  } catch (Error& e) {
    if (!e.has("at")) e.prefix(spec_->name).add("at", place.str());
    throw;
  }
}

}  // namespace stepnet::autograd
