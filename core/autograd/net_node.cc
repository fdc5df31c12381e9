#include "core/autograd/net_node.h"

#include <algorithm>

#include "core/autograd/record.h"
#include "core/keep_values.h"

namespace stepnet::autograd {
namespace {

using Kind = NetValue::Kind;

// What stands behind the gradients of a net that cannot be differentiated twice.
class NoSecondDerivative : public Node {
 public:
  NoSecondDerivative(std::string of, std::vector<Edge> edges, std::vector<TensorType> outputs, Place place)
      : Node(std::move(edges), std::move(outputs), place), of_(std::move(of)) {}
  std::string name() const override { return of_; }
  Gradients apply(Gradients, const NodeRun&) override {
    Error error(fmt::format("{} cannot be differentiated again: operators on blobs have first derivatives only", of_),
                "write the net of operators on tensors");
    error.add("at", fmt::format("the net ran forward at {}", place().str()));
    throw error;
  }

 private:
  std::string of_;
};

Tensor typed(const TensorType& type) {
  Tensor t;
  t.set_type(type.dtype, type.shape);
  return t;
}

}  // namespace

NetNode::NetNode(std::shared_ptr<const NetPlan> plan, const NetRecording& recording, std::vector<Edge> edges,
                 std::vector<TensorType> outputs, NetDraw draw, Place place)
    : Node(std::move(edges), std::move(outputs), place), plan_(std::move(plan)), recording_(recording), draw_(draw) {}

Variable NetNode::read(const NetValue& value, const Gradients& gradients) {
  const int i = value.index;
  switch (value.kind) {
    case Kind::input:
      return saved_.inputs[i].unpack(edges()[i], *this, plan_->inputs()[i]);
    case Kind::output: {
      const auto visible = static_cast<int>(plan_->outputs().size());
      const bool has_edge = recording_.depends[i] && is_floating(outputs()[i].dtype);
      const std::string& what = i < visible ? plan_->outputs()[i] : recording_.hidden[i - visible];
      return saved_.outputs[i].unpack(has_edge ? Edge{shared_from_this(), i} : Edge{}, *this, what);
    }
    case Kind::gradient:
      return gradients[i].dense;
    case Kind::type:
      return saved_.types[i].known ? Variable(typed(saved_.types[i])) : Variable();
    default:
      return {};
  }
}

std::vector<Variable> NetNode::run_gradient(const NetGradient& gradient, const Gradients& gradients) {
  std::vector<Variable> inputs;
  {
    const std::lock_guard lock(lock_);
    for (const NetValue& value : gradient.inputs) inputs.push_back(read(value, gradients));
  }
  return gradient.plan->run(inputs, draw_, place());
}

void NetNode::fill_workspace(const NetGradient& gradient, const std::vector<Variable>& inputs) {
  const NetPlan& plan = *gradient.plan;
  Workspace& workspace = saved_.runner->workspace();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    Tensor& blob = workspace.create(plan.inputs()[i]).tensor();
    // Operators on blobs may touch the bytes of what they need not read.
    const Tensor& value = inputs[i].value();
    blob = gradient.inputs[i].kind == Kind::type ? Tensor::zeros(value.dtype(), value.shape())
           : plan.overwrites(i)                  ? value.clone()
                                                 : value;
  }
  for (const NetSaved::Kept& kept : saved_.kept) *kept.place = kept.value.unpack({}, *this, "what it keeps").value();
}

// Leaves what was there before a backward run, for the next one.
void NetNode::settle_workspace(const NetGradient& gradient) {
  const NetPlan& plan = *gradient.plan;
  Workspace& workspace = saved_.runner->workspace();
  for (const std::string& name : workspace.names()) {
    settle_kept(workspace.at(name));
    if (saved_.blobs.count(name) == 0) workspace.at(name).clear();
  }
  for (size_t i = 0; i < gradient.inputs.size(); ++i)
    if (gradient.inputs[i].kind != Kind::workspace) workspace.create(plan.inputs()[i]).clear();
  for (const NetSaved::Kept& kept : saved_.kept) kept.place->drop_bytes();
}

std::vector<Tensor> NetNode::run_kept(const NetGradient& gradient, const std::vector<Variable>& inputs,
                                      bool keep_saved) {
  const NetPlan& plan = *gradient.plan;
  Workspace& workspace = saved_.runner->workspace();
  fill_workspace(gradient, inputs);
  {
    Net net(plan.net(), workspace);
    RunContext context;
    context.seed = draw_.seed;
    // What hooks have unpacked may be theirs.
    const KeepValues keep_values(keep_saved || !saved_.kept.empty());
    net.set_runs(draw_.number);
    net.run(context);
  }
  std::vector<Tensor> made;
  for (const std::string& name : plan.outputs()) made.push_back(workspace.fetch(name));
  if (keep_saved) settle_workspace(gradient);
  // A part of what the operators hold would keep all of that alive, or be overwritten by their next run.
  for (Tensor& t : made)
    if (t.storage() && (t.storage()->bytes() > t.bytes() || (keep_saved && t.storage().use_count() > 1))) t = t.clone();
  return made;
}

std::vector<Variable> NetNode::run_in_workspace(const NetGradient& gradient, const std::vector<Variable>& inputs,
                                                bool keep_saved) {
  std::vector<Tensor> tensors = run_kept(gradient, inputs, keep_saved);
  std::shared_ptr<Node> node;
  if (is_recorded(inputs)) {
    std::vector<TensorType> types;
    for (const Tensor& t : tensors) types.push_back(TensorType::of(t.dtype(), t.shape()));
    node = std::make_shared<NoSecondDerivative>(name(), gradient_edges(inputs), std::move(types), place());
  }
  std::vector<Variable> made;
  for (Tensor& t : tensors) {
    const auto k = static_cast<int>(made.size());
    made.push_back(node && is_floating(t.dtype()) ? variable_of(std::move(t), node, k) : Variable(std::move(t)));
  }
  return made;
}

Gradients NetNode::apply(Gradients gradients, const NodeRun& run) {
  if (released_) fail_released();
  Mask present;
  for (const VariableGradient& g : gradients) present.push_back(g.defined());
  Gradients results(edges().size());
  if (std::ranges::find(present, true) == present.end()) return results;
  const NetGradient& gradient = plan_->gradient(recording_, run.wanted, present, run.recording);
  std::vector<Variable> made;
  if (gradient.plan && saved_.runner) {
    const std::lock_guard lock(lock_);
    std::vector<Variable> inputs;
    for (const NetValue& value : gradient.inputs) inputs.push_back(read(value, gradients));
    try {
      made = run_in_workspace(gradient, inputs, run.keep_saved);
    } catch (Error& e) {
      add_call_place(e, place());
      throw;
    }
  } else if (gradient.plan) {
    made = run_gradient(gradient, gradients);
  }
  const auto found = [&](const NetValue& value) {
    return value.kind == Kind::made ? made[value.index] : read(value, gradients);
  };
  for (size_t i = 0; i < results.size(); ++i) {
    const NetGradient::Result& r = gradient.results[i];
    if (r.dense.kind != Kind::none) results[i].dense = found(r.dense);
    if (r.values.kind != Kind::none) results[i] = VariableGradient::sparse(found(r.indices), found(r.values));
  }
  return results;
}

void NetNode::release() {
  const std::lock_guard lock(lock_);
  const auto holds = [](const SavedValue& value) { return value.holds(); };
  released_ = released_ || saved_.runner || std::ranges::any_of(saved_.inputs, holds) ||
              std::ranges::any_of(saved_.outputs, holds);
  for (SavedValue& value : saved_.inputs) value.release();
  for (SavedValue& value : saved_.outputs) value.release();
  saved_.kept.clear();
  saved_.runner.reset();
}

}  // namespace stepnet::autograd
