// NetPlan's runs: the net on variables, what it saves, and its node.
#include <algorithm>
#include <optional>

#include "core/autograd/net_node.h"
#include "core/autograd/record.h"
#include "core/autograd/variable_state.h"
#include "core/keep_values.h"
#include "core/tensor_packer.h"

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

NetSaved save(const NetRecording& recording, std::span<const Variable> inputs, const std::vector<Tensor>& made,
              const Workspace& workspace, const Node& node) {
  NetSaved saved;
  for (size_t i = 0; i < inputs.size(); ++i)
    saved.inputs.push_back(recording.saves_input[i] ? SavedValue(inputs[i].value(), &node) : SavedValue());
  for (size_t k = 0; k < made.size(); ++k)
    saved.outputs.push_back(recording.saves_output[k] && made[k].defined() ? SavedValue(made[k], &node) : SavedValue());
  for (const std::string& name : recording.hidden) saved.outputs.emplace_back(workspace.fetch(name), &node);
  for (const std::string& name : recording.types) saved.types.push_back(type_of(workspace.at(name)));
  return saved;
}

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

// Where objects may be among the outputs, what is to be kept is known only after the run, so nothing is let go of.
std::unique_ptr<NetRunner> NetPlan::run_net(std::span<const Variable> inputs, const NetRecording* recording,
                                            const NetDraw& draw) const {
  NetRunners& runners = recording ? recording->runners : runners_;
  NetOptions options;
  options.release_intermediates = !has_objects_;
  if (recording) options.keep = recording->kept;
  std::unique_ptr<NetRunner> runner = runners.take(net_, options);
  for (size_t i = 0; i < inputs.size(); ++i)
    runner->workspace().tensor(inputs_[i]) = overwritten_[i] ? inputs[i].value().clone() : inputs[i].value();
  std::optional<HookPacker> packer;
  if (has_objects_ && tape_state().hooks && is_recorded(inputs)) packer.emplace(tape_state().hooks);
  runner->run(draw.seed, draw.number, packer ? &*packer : nullptr);
  return runner;
}

std::shared_ptr<Node> NetPlan::make_node(const NetRecording& recording, std::span<const Variable> inputs,
                                         const std::vector<Tensor>& made, std::unique_ptr<NetRunner>& runner,
                                         const NetDraw& draw, Place place) const {
  if (std::ranges::find(recording.depends, true) == recording.depends.end()) return nullptr;
  Workspace& workspace = runner->workspace();
  std::vector<TensorType> types;
  for (const Tensor& t : made) types.push_back(TensorType::of(t.dtype(), t.shape()));
  for (const std::string& name : recording.hidden) types.push_back(type_of(workspace.at(name)));
  auto node =
      std::make_shared<NetNode>(shared_from_this(), recording, gradient_edges(inputs), std::move(types), draw, place);
  NetSaved saved = save(recording, inputs, made, workspace, *node);
  if (recording.keeps_workspace) {
    saved.kept = settle_workspace(*this, recording, workspace, *node);
    for (const std::string& name : workspace.names()) saved.blobs.insert(name);
    saved.runner = std::move(runner);
  }
  node->keep(std::move(saved));
  return node;
}

std::vector<Variable> NetPlan::run_checked(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  check_inputs(inputs);
  const NetRecording* recording = nullptr;
  Mask needs;
  for (const Variable& v : inputs) needs.push_back(v.requires_grad());
  const bool recorded = is_recorded(inputs);
  if (recorded && !has_objects_) recording = &this->recording(needs, Mask(outputs_.size(), true));
  std::unique_ptr<NetRunner> runner = run_net(inputs, recording, draw);
  std::vector<Tensor> made = outputs_of(*this, *runner);
  if (has_objects_) take_small_parts(made, inputs);
  if (recorded && has_objects_) {
    Mask floating;
    for (const Tensor& t : made) floating.push_back(t.defined() && is_floating(t.dtype()));
    recording = &this->recording(needs, floating);
  }
  const std::shared_ptr<Node> node = recording ? make_node(*recording, inputs, made, runner, draw, place) : nullptr;
  if (!has_objects_) {
    runner->clear();
    (recording ? recording->runners : runners_).put_back(std::move(runner));
  }
  std::vector<Variable> outputs;
  for (size_t k = 0; k < made.size(); ++k) {
    const bool differentiable = node && recording->depends[k] && is_floating(made[k].dtype());
    outputs.push_back(!made[k].defined() ? Variable()
                      : differentiable   ? variable_of(std::move(made[k]), node, static_cast<int>(k))
                                         : Variable(std::move(made[k])));
  }
  mark_views(outputs, inputs);
  return outputs;
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
