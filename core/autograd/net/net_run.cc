// NetPlan's runs: the net on variables, what it saves, and its node.
#include <algorithm>
#include <optional>

#include "core/autograd/net/net_node.h"
#include "core/autograd/record.h"
#include "core/autograd/variable_state.h"
#include "core/net/expansions.h"
#include "core/operator/keep_values.h"
#include "core/operator/observer.h"
#include "core/operator/tensor_packer.h"

namespace stepnet::autograd {
namespace {

// The net's outputs; undefined where operators on blobs have put something else.
std::vector<Tensor> outputs_of(const NetPlan& plan, NetRunner& runner) {
  std::vector<Tensor> made;
  for (const std::string& name : plan.outputs()) {
    const Blob& blob = runner.workspace().at(name);
    if (!blob.is_tensor() && plan.has_objects()) {
      made.emplace_back();
      continue;
    }
    made.push_back(blob.tensor());
    require(made.back().defined(), "{}: the output \"{}\" holds nothing", plan.title(), name);
  }
  return made;
}

// An output that shows a small part of what an operator on blobs keeps (the last of all states) would hold all of that.
void take_small_parts(std::vector<Tensor>& outputs, std::span<const Variable> inputs) {
  for (Tensor& t : outputs) {
    const auto shares = [&](const Variable& v) { return v.value().shares_storage(t); };
    if (t.storage() && t.storage()->bytes() >= 2 * t.bytes() && !std::ranges::any_of(inputs, shares)) t = t.clone();
  }
}

TensorType type_of(const Tensor& tensor) {
  return tensor.defined() ? TensorType::of(tensor.dtype(), tensor.shape()) : TensorType{};
}

TensorType type_of(const Blob& blob) { return blob.is_tensor() ? type_of(blob.tensor()) : TensorType{}; }

// Lets go of what the net's operators name and the backward part does not read.
void drop_unread(const NetPlan& plan, const NetRecording& recording, Workspace& workspace) {
  const auto drop = [&](const std::string& name) {
    Blob* blob = name.empty() || recording.kept.count(name) > 0 ? nullptr : workspace.find(name);
    if (blob && blob->is_tensor()) blob->tensor().drop_bytes();
  };
  for (const OperatorDef& op : plan.net().op()) {
    for (const std::string& name : op.input()) drop(name);
    for (const std::string& name : op.output()) drop(name);
  }
}

std::vector<SavedValue> saved_inputs(const NetRecording& recording, std::span<const Variable> inputs,
                                     const Node& node) {
  std::vector<SavedValue> saved;
  for (size_t i = 0; i < inputs.size(); ++i)
    saved.push_back(recording.saves_input[i] ? SavedValue(inputs[i].value(), &node) : SavedValue());
  return saved;
}

// Of a net that has run: the outputs, and the hidden values that are not saved yet.
void save_results(const NetRecording& recording, const std::vector<Tensor>& made, const Workspace& workspace,
                  std::vector<SavedValue> hidden, const Node& node, NetSaved& saved) {
  hidden.resize(recording.hidden.size());
  for (size_t h = 0; h < hidden.size(); ++h)
    if (!hidden[h].holds()) hidden[h] = SavedValue(workspace.fetch(recording.hidden[h]), &node);
  for (size_t k = 0; k < made.size(); ++k)
    saved.outputs.push_back(recording.saves_output[k] && made[k].defined() ? SavedValue(made[k], &node) : SavedValue());
  for (SavedValue& value : hidden) saved.outputs.push_back(std::move(value));
  for (const std::string& name : recording.types) saved.types.push_back(type_of(workspace.at(name)));
}

std::vector<TensorType> output_types(const NetRecording& recording, const std::vector<Tensor>& made,
                                     const Workspace& workspace) {
  std::vector<TensorType> types;
  for (const Tensor& t : made) types.push_back(TensorType::of(t.dtype(), t.shape()));
  for (const std::string& name : recording.hidden) types.push_back(type_of(workspace.at(name)));
  return types;
}

bool has_gradient(const NetRecording* recording) {
  return recording && std::ranges::find(recording->depends, true) != recording->depends.end();
}

Mask needs_of(std::span<const Variable> inputs) {
  Mask needs;
  for (const Variable& v : inputs) needs.push_back(v.requires_grad());
  return needs;
}

// With hooks on saved values: a hidden value goes through them as soon as no operator writes it any more, and leaves
// the workspace when the last one has read it.
class HiddenValues : public NetObserver {
 public:
  HiddenValues(const NetRecording& recording, Workspace& workspace, const Node& node)
      : recording_(recording), workspace_(workspace), node_(node), saved_(recording.hidden.size()) {}
  void before(const BoundOp&) override {}
  void after(const BoundOp& op) override {
    for (const size_t h : recording_.hidden_turns.last_written[op.index])
      if (!recording_.saved_late[h]) saved_[h] = SavedValue(workspace_.fetch(recording_.hidden[h]), &node_);
    for (const size_t h : recording_.hidden_turns.last_used[op.index])
      if (saved_[h].holds()) workspace_.tensor(recording_.hidden[h]).drop_bytes();
  }
  std::vector<SavedValue> take() { return std::move(saved_); }

 private:
  const NetRecording& recording_;
  Workspace& workspace_;
  const Node& node_;
  std::vector<SavedValue> saved_;
};

// Asks for the inputs of a run one by one, when their turn comes.
class InputsInTurn : public NetObserver {
 public:
  InputsInTurn(const NetPlan& plan, const NetTurns& turns, NetRunner& runner, const NetPlan::TakeInput& take)
      : plan_(plan), turns_(turns), runner_(runner), take_(take) {}
  void before(const BoundOp& op) override {
    for (const size_t i : turns_.first_named[op.index]) {
      Tensor value = take_(i);
      if (!value.defined()) fail("{}: the input \"{}\" is undefined", plan_.title(), plan_.inputs()[i]);
      runner_.input(i) = plan_.overwrites(i) ? value.clone() : std::move(value);
    }
  }
  void after(const BoundOp& op) override {
    for (const size_t i : turns_.last_used[op.index]) runner_.input(i).drop_bytes();
  }

 private:
  const NetPlan& plan_;
  const NetTurns& turns_;
  NetRunner& runner_;
  const NetPlan::TakeInput& take_;
};

// What the workspace itself keeps; with hooks on saved values that goes through them, and the workspace is left empty.
std::vector<NetSaved::Kept> settle_workspace(const NetPlan& plan, const NetRecording& recording, Workspace& workspace,
                                             const Node& node) {
  drop_unread(plan, recording, workspace);
  std::vector<Tensor*> places;
  for (const std::string& name : workspace.names()) {
    Blob& blob = workspace.at(name);
    const KeptTensors kept = settle_kept(blob);
    places.insert(places.end(), kept.begin(), kept.end());
    if (blob.is_tensor() && tape_state().hooks && plan.is_saved_by_name(name)) blob.tensor().drop_bytes();
    if (blob.is_tensor()) places.push_back(&blob.tensor());
  }
  std::vector<NetSaved::Kept> packed;
  if (!tape_state().hooks) return packed;
  for (Tensor* place : places) {
    if (!place->storage()) continue;
    packed.push_back({place, SavedValue(*place, &node)});
    place->drop_bytes();
  }
  return packed;
}

// Packs by the hooks on saved values what operators on blobs keep while they still run.
class HookPacker : public TensorPacker {
 public:
  explicit HookPacker(std::shared_ptr<const SavedValueHooks> hooks) : hooks_(std::move(hooks)) {}

  std::unique_ptr<PackedTensors> pack(std::vector<Tensor> values) override {
    auto packed = std::make_unique<Packed>();
    packed->hooks = hooks_;
    for (Tensor& value : values) {
      packed->types.push_back(type_of(value));
      packed->objects.push_back(hooks_->pack(value));
      value = {};
    }
    return packed;
  }

 private:
  struct Packed : PackedTensors {
    std::vector<Tensor> unpack() override {
      std::vector<Tensor> values;
      for (size_t i = 0; i < objects.size(); ++i) {
        values.push_back(hooks->unpack(objects[i]));
        const TensorType type = type_of(values[i]);
        require(type.dtype == types[i].dtype && type.shape == types[i].shape,
                "what a recurrent network kept was packed as {} and unpacked as {}", types[i].str(), type.str());
      }
      return values;
    }
    std::shared_ptr<const SavedValueHooks> hooks;
    std::vector<std::any> objects;
    std::vector<TensorType> types;
  };

  std::shared_ptr<const SavedValueHooks> hooks_;
};

// Variables that show bytes which another name shows too.
void mark_views(std::vector<Variable>& outputs, std::span<const Variable> inputs) {
  for (size_t k = 0; k < outputs.size(); ++k) {
    Variable& v = outputs[k];
    const auto shares = [&](const Variable& other) {
      return v.defined() && other.defined() && v.value().shares_storage(other.value());
    };
    const std::span<const Variable> earlier(outputs.data(), k);
    if (const auto base = std::ranges::find_if(inputs, shares); base != inputs.end()) {
      make_view(v, *base);
    } else if (const auto first = std::ranges::find_if(earlier, shares); v.requires_grad() && first != earlier.end()) {
      make_view(v, *first);
    }
  }
}

}  // namespace

void NetPlan::check_inputs(std::span<const Variable> inputs) const {
  require(inputs.size() == inputs_.size(), "{} has {} inputs, and gets {}", title(), inputs_.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].defined(), "{}: the input \"{}\" is undefined", title(), inputs_[i]);
    check_view(inputs[i]);
  }
}

void NetPlan::feed(NetRunner& runner, std::span<const Variable> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    runner.input(i) = overwritten_[i] ? inputs[i].value().clone() : inputs[i].value();
}

// What a run has made, and how it was recorded: a null node if no gradient can be wanted.
struct NetPlan::Made {
  std::vector<Tensor> outputs;
  const NetRecording* recording = nullptr;
  std::shared_ptr<NetNode> node = nullptr;
};

// The node is there before the net runs: what is saved on the way is saved for it.
NetPlan::Made NetPlan::run_tensors(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  Made made;
  NetOptions options;
  options.release_intermediates = true;
  if (is_recorded(inputs)) {
    made.recording = &recording(needs_of(inputs), Mask(outputs_.size(), true));
    options.keep = made.recording->kept;
  }
  NetRunners& runners = made.recording ? made.recording->runners : runners_;
  std::unique_ptr<NetRunner> runner = runners.take(net_, options);
  Workspace& workspace = runner->workspace();
  feed(*runner, inputs);
  NetSaved saved;
  std::optional<HiddenValues> hidden;
  if (has_gradient(made.recording)) {
    made.node = std::make_shared<NetNode>(shared_from_this(), *made.recording, gradient_edges(inputs), draw, place);
    saved.inputs = saved_inputs(*made.recording, inputs, *made.node);
    if (tape_state().hooks) hidden.emplace(*made.recording, workspace, *made.node);
  }
  runner->run(draw.seed, draw.number, nullptr, hidden ? &*hidden : nullptr);
  made.outputs = outputs_of(*this, *runner);
  if (made.node) {
    save_results(*made.recording, made.outputs, workspace, hidden ? hidden->take() : std::vector<SavedValue>{},
                 *made.node, saved);
    made.node->keep(std::move(saved), output_types(*made.recording, made.outputs, workspace));
  }
  runner->clear();
  runners.put_back(std::move(runner));
  return made;
}

// Where objects may be among the outputs, what is to be kept is known only after the run, so nothing is let go of. If
// no gradient can be wanted, operators on blobs keep nothing for it either.
NetPlan::Made NetPlan::run_objects(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  Made made;
  const Mask needs = needs_of(inputs);
  const bool recorded = is_recorded(inputs) && reaches_output(needs);
  auto runner = std::make_unique<NetRunner>(recorded ? net_ : forward_only(net_), NetOptions{});
  feed(*runner, inputs);
  std::optional<HookPacker> packer;
  if (recorded && tape_state().hooks) packer.emplace(tape_state().hooks);
  runner->run(draw.seed, draw.number, packer ? &*packer : nullptr);
  made.outputs = outputs_of(*this, *runner);
  take_small_parts(made.outputs, inputs);
  if (!recorded) return made;
  Mask floating;
  for (const Tensor& t : made.outputs) floating.push_back(t.defined() && is_floating(t.dtype()));
  made.recording = &recording(needs, floating);
  if (!has_gradient(made.recording)) return made;
  Workspace& workspace = runner->workspace();
  made.node = std::make_shared<NetNode>(shared_from_this(), *made.recording, gradient_edges(inputs), draw, place);
  NetSaved saved;
  saved.inputs = saved_inputs(*made.recording, inputs, *made.node);
  save_results(*made.recording, made.outputs, workspace, {}, *made.node, saved);
  std::vector<TensorType> types = output_types(*made.recording, made.outputs, workspace);
  if (made.recording->keeps_workspace) {
    saved.kept = settle_workspace(*this, *made.recording, workspace, *made.node);
    for (const std::string& name : workspace.names()) saved.blobs.insert(name);
    saved.runner = std::move(runner);
  }
  made.node->keep(std::move(saved), std::move(types));
  return made;
}

std::vector<Variable> NetPlan::run_checked(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  check_inputs(inputs);
  Made made = has_objects_ ? run_objects(inputs, draw, place) : run_tensors(inputs, draw, place);
  std::vector<Variable> outputs;
  for (size_t k = 0; k < made.outputs.size(); ++k) {
    Tensor& t = made.outputs[k];
    const bool differentiable = made.node && made.recording->depends[k] && is_floating(t.dtype());
    outputs.push_back(!t.defined()     ? Variable()
                      : differentiable ? variable_of(std::move(t), made.node, static_cast<int>(k))
                                       : Variable(std::move(t)));
  }
  mark_views(outputs, inputs);
  return outputs;
}

std::vector<Tensor> NetPlan::run_taking(const TakeInput& take, const NetDraw& draw, Place place) const {
  try {
    NetOptions options;
    options.release_intermediates = true;
    std::unique_ptr<NetRunner> runner = runners_.take(net_, options);
    InputsInTurn inputs(*this, turns_, *runner, take);
    runner->run(draw.seed, draw.number, nullptr, &inputs);
    std::vector<Tensor> made = outputs_of(*this, *runner);
    runner->clear();
    runners_.put_back(std::move(runner));
    return made;
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
}

std::vector<Variable> NetPlan::run(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  try {
    return run_checked(inputs, draw, place);
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
}

}  // namespace stepnet::autograd
