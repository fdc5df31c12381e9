#include "core/autograd/net/net_node.h"

#include <algorithm>

#include "core/autograd/capture.h"
#include "core/autograd/graph_task.h"
#include "core/autograd/tape_tangents.h"
#include "stepnet/record.h"
#include "stepnet/stream_order.h"

namespace stepnet::autograd {
namespace {

using Kind = TapeSource::Kind;

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

}  // namespace

NetNode::NetNode(std::shared_ptr<const TapeNet> plan, const NetRecording& recording, std::vector<Edge> edges,
                 NetDraw draw, Place place)
    : Node(std::move(edges), {}, place), plan_(std::move(plan)), recording_(recording), draw_(draw) {}

void NetNode::note_types(TapeCapture& capture, const std::map<std::string, std::string>& names) const {
  const auto of = [&](const std::string& blob) {
    const auto it = names.find(blob);
    return it == names.end() ? std::string() : it->second;
  };
  std::vector<std::string> types, made;
  for (const std::string& blob : recording_.types) types.push_back(of(blob));
  for (const std::string& blob : plan_->outputs()) made.push_back(of(blob));
  for (const std::string& blob : recording_.hidden) made.push_back(of(blob));
  capture.note_types(shared_from_this(), saved_.types, types);
  capture.note_types(shared_from_this(), outputs(), made);
}

void NetNode::keep(NetSaved saved, std::vector<TensorType> outputs) {
  saved_ = std::move(saved);
  set_outputs(std::move(outputs));
}

void NetNode::set_moving(std::shared_ptr<LevelState> level) {
  const std::lock_guard lock(lock_);
  levels_.push_back(std::move(level));
}

void NetNode::check_moving(const Gradients& gradients) const {
  const bool is_moved = std::ranges::any_of(levels_, [](const auto& level) { return sees(*level); });
  const bool gets_moved = recording_.keeps_workspace && any_moves(gradients);
  if (!is_moved && !gets_moved) return;
  NoTangentOfGradient error(
      fmt::format("{} cannot have a tangent: a net that runs as one operation keeps none", name()),
      "take the gradient of the tangent instead, reverse over forward");
  add_place(error);
  throw error;
}

SavedValue* NetNode::find(const TapeSource& value) {
  if (value.kind == Kind::input) return &saved_.inputs[value.index];
  return value.kind == Kind::output ? &saved_.outputs[value.index] : nullptr;
}

// A hook that unpacks may run a whole pass, which may come here on another thread: it runs without the lock.
Variable NetNode::read(const TapeSource& value, const Gradients& gradients) {
  const int i = value.index;
  if (value.kind == Kind::gradient) return gradients[i].dense;
  if (value.kind == Kind::type) return saved_.types[i].known ? type_only(saved_.types[i]) : Variable();
  SavedValue saved;
  {
    const std::lock_guard lock(lock_);
    const SavedValue* found = find(value);
    if (!found) return {};
    saved = *found;
  }
  if (value.kind == Kind::input) return saved.unpack(edges()[i], *this, plan_->inputs()[i]);
  const auto visible = static_cast<int>(plan_->outputs().size());
  const bool has_edge = recording_.depends[i] && is_floating(outputs()[i].dtype);
  const std::string& what = i < visible ? plan_->outputs()[i] : recording_.hidden[i - visible];
  return saved.unpack(has_edge ? Edge{shared_from_this(), i} : Edge{}, *this, what);
}

bool NetNode::has_packed() {
  const std::lock_guard lock(lock_);
  const auto packed = [](const SavedValue& value) { return value.packed() != nullptr; };
  return std::ranges::any_of(saved_.inputs, packed) || std::ranges::any_of(saved_.outputs, packed);
}

void NetNode::let_go_of(const TapeSource& value) {
  const std::lock_guard lock(lock_);
  if (SavedValue* saved = find(value)) saved->release();
}

// Each value is unpacked when the first operator is to read it, and is gone when the last one has. A pass that will not
// come again lets go of the value itself, too: but not of a packed one, as hooks may still run passes of their own.
std::vector<Variable> NetNode::run_in_turn(const NetGradient& gradient, Gradients& gradients, bool keep_saved) {
  const bool lets_go = !keep_saved && !has_packed();
  const auto take = [&](size_t input) -> Tensor {
    const TapeSource& value = gradient.inputs[input];
    if (value.kind == Kind::gradient) return std::exchange(gradients[value.index], {}).value();
    const Variable v = read(value, gradients);
    if (lets_go) let_go_of(value);
    return v.defined() ? v.value() : Tensor();
  };
  std::vector<Variable> made;
  for (Tensor& t : gradient.plan->run_taking(take, draw_, place())) made.emplace_back(std::move(t));
  return made;
}

// What the gradient's operators make. A recorded run keeps its inputs for the next derivative, so it gets all at once;
// on a GPU, operators run on several streams at once unless each is to wait for its inputs.
std::vector<Variable> NetNode::run_operators(const NetGradient& gradient, Gradients& gradients, const NodeRun& run) {
  if (!gradient.plan) return {};
  const auto on_cpu = [](const VariableGradient& g) { return device_of_gradient(g).kind == DeviceKind::cpu; };
  const bool in_turn =
      !run.recording && !tape_state().capture && (has_packed() || std::ranges::all_of(gradients, on_cpu));
  if (!recording_.keeps_workspace && in_turn) return run_in_turn(gradient, gradients, run.keep_saved);
  std::vector<Variable> inputs;
  for (const TapeSource& value : gradient.inputs) inputs.push_back(read(value, gradients));
  if (!recording_.keeps_workspace) return gradient.plan->run(inputs, draw_, place());
  try {
    return run_in_workspace(gradient, inputs, run.keep_saved);
  } catch (Error& e) {
    add_call_place(e, place());
    throw;
  }
}

// While it lives, a pass has the workspace for itself. Throws Error if that pass is inside the one that has it, which
// would wait for itself.
class NetNode::Turn {
 public:
  explicit Turn(NetNode& node) : node_(node), held_(node.workspace_lock_, std::defer_lock) {
    const GraphTask* const task = tape_state().task;
    {
      const std::lock_guard lock(node_.lock_);
      if (node_.at_work_ && task && task->is_within(*node_.at_work_))
        throw Error(fmt::format("{} is at work, and a hook that unpacks what it keeps runs a backward pass through it",
                                node_.name()),
                    "run that pass before or after");
    }
    held_.lock();
    const std::lock_guard lock(node_.lock_);
    if (!node_.saved_.runner) node_.fail_released();
    node_.at_work_ = task;
    runner_ = node_.saved_.runner;
  }
  ~Turn() {
    const std::lock_guard lock(node_.lock_);
    node_.at_work_ = nullptr;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Workspace& workspace() { return runner_->workspace(); }

 private:
  NetNode& node_;
  std::unique_lock<std::mutex> held_;
  std::shared_ptr<NetRunner> runner_;  // also if the node is released meanwhile
};

void NetNode::fill_workspace(const NetGradient& gradient, const std::vector<Variable>& inputs,
                             Workspace& workspace) const {
  const TapeNet& plan = *gradient.plan;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    Tensor& blob = workspace.create(plan.inputs()[i]).tensor();
    // Operators on blobs may touch the bytes of what they need not read.
    const Tensor& value = inputs[i].value();
    blob = gradient.inputs[i].kind == Kind::type ? Tensor::zeros(value.dtype(), value.shape())
           : plan.overwrites(i)                  ? value.clone()
                                                 : value;
  }
}

// What hooks have taken from the workspace, in the order of NetSaved::kept.
std::vector<Tensor> NetNode::unpack_kept() {
  std::vector<NetSaved::Kept> kept;
  {
    const std::lock_guard lock(lock_);
    kept = saved_.kept;
  }
  std::vector<Tensor> values;
  for (const NetSaved::Kept& k : kept) values.push_back(k.value.unpack({}, *this, "what it keeps").value());
  return values;
}

// Where these stand in the workspace.
std::vector<Tensor*> NetNode::kept_places() {
  const std::lock_guard lock(lock_);
  std::vector<Tensor*> places;
  for (const NetSaved::Kept& k : saved_.kept) places.push_back(k.place);
  return places;
}

// Leaves what was there before a backward run, for the next one.
void NetNode::settle_workspace(const NetGradient& gradient, Workspace& workspace) const {
  const TapeNet& plan = *gradient.plan;
  for (const std::string& name : workspace.names()) {
    if (KeptState* state = workspace.at(name).kept_state()) state->settle();
    if (saved_.blobs.count(name) == 0) workspace.at(name).clear();
  }
  for (size_t i = 0; i < gradient.inputs.size(); ++i)
    if (gradient.inputs[i].kind != Kind::workspace) workspace.create(plan.inputs()[i]).clear();
}

std::vector<Tensor> NetNode::run_kept(const NetGradient& gradient, const std::vector<Variable>& inputs,
                                      bool keep_saved) {
  refuse_captured(name(), "it has operators on blobs; capture a net of operators on tensors");
  const TapeNet& plan = *gradient.plan;
  std::vector<Tensor> kept = unpack_kept();
  Turn turn(*this);
  Workspace& workspace = turn.workspace();
  fill_workspace(gradient, inputs, workspace);
  const std::vector<Tensor*> places = kept.empty() ? std::vector<Tensor*>{} : kept_places();
  for (size_t k = 0; k < places.size(); ++k) *places[k] = std::move(kept[k]);
  {
    Net net(plan.net(), workspace);
    RunContext context;
    context.seed = draw_.seed;
    // What hooks have unpacked may be theirs.
    context.keep_values = keep_saved || !places.empty();
    net.set_runs(draw_.number);
    net.run(context);
  }
  std::vector<Tensor> made;
  for (const std::string& name : plan.outputs()) made.push_back(workspace.fetch(name));
  if (keep_saved) {
    settle_workspace(gradient, workspace);
    for (Tensor* place : places) place->drop_bytes();
  }
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

Gradients NetNode::apply(Gradients gradients, const NodeRun& asked) {
  NodeRun run = asked;
  run.recording = run.recording || any_moves(gradients);  // the gradient net runs as one of the tape
  {
    const std::lock_guard lock(lock_);
    if (released_) fail_released();
    check_moving(gradients);
  }
  Mask present;
  for (const VariableGradient& g : gradients) present.push_back(g.defined());
  Gradients results(edges().size());
  if (std::ranges::find(present, true) == present.end()) return results;
  const NetGradient& gradient = plan_->gradient(recording_, run.wanted, present, run.recording);
  std::vector<Variable> made;
  const auto put = [&](bool is_made) {
    const auto put_one = [&](const TapeSource& value, Variable& to) {
      if (value.kind == Kind::none || (value.kind == Kind::made) != is_made) return;
      to = is_made ? made[value.index] : read(value, gradients);
    };
    for (size_t i = 0; i < results.size(); ++i) {
      const NetGradient::Result& r = gradient.results[i];
      put_one(r.dense, results[i].dense);
      put_one(r.indices, results[i].indices);
      put_one(r.values, results[i].values);
    }
  };
  put(false);  // before the operators take the gradients and the values
  made = run_operators(gradient, gradients, run);
  put(true);
  return results;
}

void NetNode::release() {
  std::vector<NetSaved::Kept> kept;
  std::shared_ptr<NetRunner> runner;  // these go when the lock has gone
  const std::lock_guard lock(lock_);
  const auto holds = [](const SavedValue& value) { return value.holds(); };
  released_ = released_ || saved_.runner || std::ranges::any_of(saved_.inputs, holds) ||
              std::ranges::any_of(saved_.outputs, holds);
  for (SavedValue& value : saved_.inputs) value.release();
  for (SavedValue& value : saved_.outputs) value.release();
  kept.swap(saved_.kept);
  runner.swap(saved_.runner);
}

}  // namespace stepnet::autograd
