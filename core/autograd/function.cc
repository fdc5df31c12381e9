#include "stepnet/function.h"

#include <algorithm>

#include "core/autograd/capture.h"
#include "core/autograd/gradient_buffer.h"
#include "core/autograd/tape_tangents.h"
#include "core/autograd/variable_state.h"
#include "stepnet/record.h"
#include "stepnet/stream_order.h"

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

namespace {

// A capture is to notice if the function's own code writes to them.
void see_inputs(const std::vector<Variable>& inputs) {
  TapeCapture* const capture = tape_state().capture;
  if (!capture) return;
  for (const Variable& v : inputs)
    if (v.defined()) capture->name_of(v.value());
}

// The function has written to it. What operators have written there is still what it is.
void mark_overwritten(const Variable& v, uint64_t version_before) {
  TapeCapture* const capture = tape_state().capture;
  Tensor& value = v.state()->value;
  const std::string* known = capture && value.version() != version_before ? capture->known(value) : nullptr;
  const std::string name = known ? *known : "";
  value.mark_written();
  if (!name.empty()) capture->wrote(name, value);
}

void check_captured(const Variable& value, const std::string& by) {
  TapeCapture* const capture = tape_state().capture;
  if (capture && value.defined()) capture->check_made(value.value(), by);
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

std::vector<Variable> Function::compute(const std::vector<Variable>& inputs, Place place) const {
  if (moves(inputs)) return compute_moving(inputs, place);
  see_inputs(inputs);
  FunctionCall call(spec_->name, inputs);
  const std::vector<uint64_t> before = versions_of(inputs);
  std::vector<Variable> outputs;
  {
    const NoGrad no_grad;
    outputs = spec_->forward(call);
  }
  for (const Variable& v : call.overwritten_) mark_overwritten(v, before[index_of(inputs, v)]);
  call.check_writes(before, outputs);
  for (const Variable& v : outputs) check_captured(v, spec_->name);
  const auto differentiable = [&](const Variable& v) { return v.defined() && !call.is_constant(v); };
  const bool recorded = is_recorded(inputs) && std::any_of(outputs.begin(), outputs.end(), differentiable);
  const std::shared_ptr<FunctionNode> node = recorded ? record(call, outputs, place) : nullptr;
  std::vector<Variable> shown;
  for (size_t o = 0; o < outputs.size(); ++o) shown.push_back(call.show(outputs[o], node, static_cast<int>(o)));
  return shown;
}

// As with operators, see core/autograd/tape_tangents.h.
std::vector<Variable> Function::compute_moving(const std::vector<Variable>& inputs, Place place) const {
  if (!spec_->tangents)
    throw Error("an input has a tangent, but the function has no forward mode", "give it `tangents`");
  const std::shared_ptr<LevelState> level = moving_level(inputs);
  const BelowLevel below(level->number);
  std::vector<Variable> moved;
  for (const Variable& v : inputs) moved.push_back(tangent_of(v, *level));
  const std::vector<uint64_t> before = versions_of(inputs);
  const std::vector<Variable> outputs = compute(inputs, place);
  if (versions_of(inputs) != before)
    throw Error("the function overwrites an input, which forward mode does not allow", "let it overwrite a copy");
  const std::vector<Variable> tangents = spec_->tangents(inputs, outputs, moved);
  require(tangents.size() == outputs.size(), "there are {} outputs, but `tangents` has returned {}", outputs.size(),
          tangents.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].defined() || !tangents[o].defined()) continue;
    require(tangents[o].shape() == outputs[o].shape() && tangents[o].dtype() == outputs[o].dtype(),
            "the tangent of output {}, {}, is {}", o, outputs[o].value(), tangents[o].value());
    set_tangent(outputs[o], level, tangents[o]);
  }
  for (const Variable& out : outputs)
    if (out.defined() && out.grad_fn())
      if (auto* node = dynamic_cast<FunctionNode*>(out.grad_fn().get())) node->save_tangents(inputs, outputs, level);
  return outputs;
}

std::vector<Variable> Function::operator()(const std::vector<Variable>& inputs, Place place) const {
  try {
    for (const Variable& v : inputs)
      if (v.defined()) check_view(v);
    return compute(inputs, place);
  } catch (Error& e) {
    if (!e.has("at")) e.prefix(spec_->name).add("at", place.str());
    throw;
  }
}

// FunctionNode: the backward of a user's own function.
namespace {

// Stands behind gradients that were not recorded, and says so when somebody differentiates them.
class OnceDifferentiable : public Node {
 public:
  OnceDifferentiable(std::string of, std::vector<Edge> edges, std::vector<TensorType> outputs, Place place)
      : Node(std::move(edges), std::move(outputs), place), of_(std::move(of)) {}
  std::string name() const override { return of_ + "Gradient"; }
  Gradients apply(Gradients, const NodeRun&) override {
    throw Error(fmt::format("{} can be differentiated only once, as its backward says", of_),
                "leave once_differentiable out and use operators in the backward");
  }

 private:
  std::string of_;
};

TensorType type_of(const Variable& v) { return TensorType::of(v.dtype(), v.shape()); }

void add_edge(std::vector<Edge>& edges, const Variable& v) {
  if (Edge edge = v.gradient_edge(); edge.valid()) edges.push_back(std::move(edge));
}

}  // namespace

FunctionNode::FunctionNode(std::shared_ptr<const Function::Spec> spec, std::vector<Edge> edges,
                           std::vector<TensorType> outputs, Place place)
    : Node(std::move(edges), std::move(outputs), place), spec_(std::move(spec)) {}

FunctionNode::~FunctionNode() {
  for (Saved& s : saved_) let_go(std::move(s.edge.node));
}

SavedValue* FunctionNode::saved_value(std::string_view name) {
  const auto it = std::find_if(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.name == name; });
  return it == saved_.end() ? nullptr : &it->value;
}

void FunctionNode::save_tangents(const std::vector<Variable>& inputs, const std::vector<Variable>& outputs,
                                 std::shared_ptr<LevelState> level) {
  const std::lock_guard lock(lock_);
  levels_.push_back(std::move(level));
  for (Saved& s : saved_) {
    const Variable v = s.input >= 0 ? inputs[s.input] : s.output >= 0 ? outputs[s.output] : Variable();
    if (v.defined()) s.value.set_tangents(v.state()->tangents);
  }
}

// What a moving function saved beside its inputs and outputs has no tangents, and what is not recorded may have lost
// them: the gradients' tangents would be wrong.
void FunctionNode::check_moving() const {
  if (std::ranges::none_of(levels_, [](const auto& level) { return sees(*level); })) return;
  const auto is_other = [](const Saved& s) { return s.input < 0 && s.output < 0 && s.value.holds(); };
  const auto other = std::ranges::find_if(saved_, is_other);
  if (other != saved_.end())
    throw Error(fmt::format("{} saved \"{}\", which is no input and no output and so has no tangent, and its gradients "
                            "are to have some",
                            spec_->name, other->name),
                "return it as an output");
  if (spec_->once_differentiable)
    throw Error(fmt::format("{} can be differentiated only once, and its gradients are to have tangents", spec_->name),
                "leave once_differentiable out and use operators in the backward");
}

Variable FunctionNode::saved(std::string_view name, bool release_it) {
  Edge edge;
  SavedValue value;
  {
    // Hooks that unpack may run whole passes, so that they run without the lock.
    const std::lock_guard lock(lock_);
    const auto it = std::find_if(saved_.begin(), saved_.end(), [&](const Saved& s) { return s.name == name; });
    require(it != saved_.end(), "{}: nothing was saved as \"{}\"", this->name(), name);
    value = it->value;
    if (it->input >= 0)
      edge = edges()[it->input];
    else
      edge = it->output >= 0 ? Edge{shared_from_this(), it->output} : it->edge;
    if (release_it) it->value.release();
  }
  return value.unpack(edge, *this, name);
}

Gradients FunctionNode::run_backward(const Gradients& gradients, const NodeRun& run) {
  require(spec_->backward != nullptr, "{} has no backward, but a gradient is wanted of it", spec_->name);
  FunctionRun pass(*this, run);
  if (!spec_->once_differentiable) return spec_->backward(pass, gradients);
  const NoGrad no_grad;
  return spec_->backward(pass, gradients);
}

void FunctionNode::differentiate_never(Gradients& made, const Gradients& gradients) const {
  std::vector<Edge> edges_behind;
  for (const Edge& edge : edges())
    if (edge.valid()) edges_behind.push_back(edge);
  for (const VariableGradient& g : gradients) add_edge(edges_behind, g.dense);
  std::vector<TensorType> types;
  std::vector<Variable*> results;
  for (VariableGradient& g : made) {
    if (!g.defined()) continue;
    results.push_back(g.is_sparse() ? &g.values : &g.dense);
    types.push_back(type_of(*results.back()));
  }
  const auto node =
      std::make_shared<OnceDifferentiable>(spec_->name, std::move(edges_behind), std::move(types), place());
  for (size_t i = 0; i < results.size(); ++i) *results[i] = variable_of(results[i]->value(), node, static_cast<int>(i));
}

Gradients FunctionNode::apply(Gradients gradients, const NodeRun& run) {
  {
    const std::lock_guard lock(lock_);
    if (released_) fail_released();
    check_moving();
  }
  if (spec_->zeros_for_absent)
    for (size_t o = 0; o < gradients.size(); ++o)
      if (!gradients[o].defined() && is_floating(outputs()[o].dtype))
        gradients[o] = filled(outputs()[o], stream() ? stream()->device : Device{}, 0);
  Gradients made = run_backward(gradients, run);
  const size_t inputs = edges().size();
  while (made.size() > inputs && !made.back().defined()) made.pop_back();
  if (made.size() != inputs)
    fail("{} has {} inputs, but its backward has returned {} gradients", spec_->name, inputs, made.size());
  for (size_t i = 0; i < inputs; ++i)
    if (!run.wanted[i]) made[i] = {};
  for (const VariableGradient& g : made)
    for (const Variable* part : {&g.dense, &g.indices, &g.values}) check_captured(*part, name());
  if (spec_->once_differentiable && run.recording) differentiate_never(made, gradients);
  return made;
}

void FunctionNode::release() {
  const std::lock_guard lock(lock_);
  for (Saved& s : saved_) {
    released_ = released_ || s.value.holds();
    s.value.release();
  }
}

Variable FunctionRun::saved(std::string_view name) const { return node_.saved(name); }
Variable FunctionRun::take_saved(std::string_view name) { return node_.saved(name, !run_.keep_saved); }
std::any& FunctionRun::data() const { return node_.data; }

}  // namespace stepnet::autograd
