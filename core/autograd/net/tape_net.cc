#include "core/autograd/net/tape_net.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/autograd/capture.h"
#include "core/autograd/net/net_node.h"
#include "core/autograd/tape_tangents.h"
#include "core/autograd/variable_state.h"
#include "core/net/expansions.h"
#include "core/operator/observer.h"
#include "core/operator/tensor_packer.h"
#include "stepnet/gradients.h"
#include "stepnet/op_spec.h"
#include "stepnet/record.h"

namespace stepnet::autograd {
NetTurns net_turns(const NetDef& net, const std::vector<std::string>& names) {
  struct Turn {
    int first = -1, written = -1, used = -1;
  };
  std::map<std::string, size_t> places;
  for (const std::string& name : names) places.emplace(name, places.size());
  std::vector<Turn> turns(names.size());
  for (int s = 0; s < net.op_size(); ++s) {
    const OperatorDef& op = net.op(s);
    const auto meet = [&](const std::string& name, bool uses, bool writes) {
      const auto it = places.find(name);
      if (it == places.end()) return;
      Turn& turn = turns[it->second];
      if (turn.first < 0) turn.first = turn.used = s;
      if (uses) turn.used = s;
      if (writes) turn.written = s;
    };
    const std::vector<bool> reads = element_reads(op_spec(op.type()), op);
    for (int i = 0; i < op.input_size(); ++i) meet(op.input(i), reads[i], false);
    for (const std::string& name : op.output()) meet(name, true, true);
  }
  const std::vector<std::vector<size_t>> none(static_cast<size_t>(net.op_size()));
  NetTurns result{none, none, none};
  for (size_t place = 0; place < turns.size(); ++place) {
    const Turn& turn = turns[place];
    if (turn.first >= 0) result.first_named[turn.first].push_back(place);
    if (turn.written >= 0) result.last_written[turn.written].push_back(place);
    if (turn.used >= 0) result.last_used[turn.used].push_back(place);
  }
  return result;
}

bool may_have_alias(const NetDef& net, const std::string& name) {
  return std::ranges::any_of(net.op(), [&](const OperatorDef& op) {
    return std::ranges::any_of(op_spec(op.type()).aliases, [&](const AliasRule& rule) {
      const OpSpec& spec = op_spec(op.type());
      const int in = spec.input_index(rule.in), out = spec.output_index(rule.out);
      return (in < op.input_size() && op.input(in) == name) || (out < op.output_size() && op.output(out) == name);
    });
  });
}

namespace {

constexpr size_t kMostWaiting = 16;

}  // namespace

NetRunner::NetRunner(const NetDef& net, const NetOptions& options) : net_(net, workspace_, options) {
  for (const std::string& name : net.external_input()) inputs_.push_back(&workspace_.create(name));
  for (const std::string& name : workspace_.names()) blobs_.push_back(workspace_.find(name));
}

void NetRunner::run(uint64_t seed, int64_t iteration, TensorPacker* packer, NetObserver* observer) {
  RunContext context;
  context.seed = seed;
  context.packer = packer;
  context.observer = observer;
  net_.set_runs(iteration);
  net_.run(context);
}

void NetRunner::clear() {
  for (Blob* blob : blobs_) blob->clear();
}

std::unique_ptr<NetRunner> NetRunners::take(const NetDef& net, const NetOptions& options) {
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {
      std::unique_ptr<NetRunner> runner = std::move(waiting_.back());
      waiting_.pop_back();
      return runner;
    }
  }
  return std::make_unique<NetRunner>(net, options);
}

void NetRunners::put_back(std::unique_ptr<NetRunner> runner) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() < kMostWaiting) waiting_.push_back(std::move(runner));
}

namespace {

int place_in(const std::vector<std::string>& names, const std::string& name) {
  const auto it = std::ranges::find(names, name);
  return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

void check_unique(const std::vector<std::string>& names, const char* what, const NetDef& net) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    require(!name.empty(), "an {} of net \"{}\" has no name", what, net.name());
    require(seen.insert(name).second, "\"{}\" is twice among the {}s of net \"{}\"", name, what, net.name());
  }
}

// With these external inputs and outputs, and right.
NetDef checked(NetDef net, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  check_unique(inputs, "input", net);
  check_unique(outputs, "output", net);
  net.clear_external_input();
  net.clear_external_output();
  net.mutable_external_input()->Add(inputs.begin(), inputs.end());
  net.mutable_external_output()->Add(outputs.begin(), outputs.end());
  const std::set<std::string> available(inputs.begin(), inputs.end());
  check_net(net, &available);
  return net;
}

// The input that an output must overwrite, or -1.
int overwritten_input(const OperatorDef& op, int output) {
  const OpSpec& spec = op_spec(op.type());
  for (const InPlaceRule& rule : spec.in_place) {
    const int i = spec.input_index(rule.in);
    if (rule.enforced && spec.output_index(rule.out) == output && i < op.input_size()) return i;
  }
  return -1;
}

}  // namespace

// A net's backward part for some targets: its operators, and what they and the results read of the forward run.
struct TapeNet::Reads {
  NetDef net;
  std::map<std::string, GradientName> gradients;
  std::map<std::string, int> given;  // name of a target's gradient, to its place among the targets
  std::vector<std::string> names;    // gradients of targets too
  std::set<std::string> values, written;

  void write_apart();
};

// Gives a name of its own to everything that an operator writes, unless it must be written in place.
void TapeNet::Reads::write_apart() {
  std::map<std::string, std::string> now;
  std::set<std::string> taken(names.begin(), names.end());
  taken.insert(written.begin(), written.end());
  std::set<std::string> used(names.begin(), names.end());
  for (OperatorDef& op : *net.mutable_op()) {
    const OperatorDef before = op;
    for (std::string& name : *op.mutable_input())
      if (const auto it = now.find(name); it != now.end()) name = it->second;
    for (int o = 0; o < op.output_size(); ++o) {
      const std::string& name = before.output(o);
      if (name.empty()) continue;
      std::string fresh = name;
      if (const int i = overwritten_input(before, o); i >= 0) {
        fresh = op.input(i);
      } else if (!used.insert(name).second) {
        for (int n = 1; !taken.insert(fresh).second; ++n) fresh = fmt::format("{}/{}", name, n);
      }
      written.insert(fresh);
      now[name] = fresh;
      op.set_output(o, fresh);
    }
  }
  for (auto& [input, gradient] : gradients)
    for (std::string* name : {&gradient.dense, &gradient.indices, &gradient.values})
      if (const auto it = now.find(*name); it != now.end()) *name = it->second;
}

TapeNet::TapeNet(NetDef net, std::vector<std::string> inputs, std::vector<std::string> outputs)
    : net_(checked(std::move(net), inputs, outputs)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      bound_(net_) {
  for (const std::string& name : inputs_)
    overwritten_.push_back(value_after(name) >= 0 && bound_.flow.value(value_after(name)).writer >= 0);
  for (const BoundOp& op : bound_.ops) {
    has_objects_ = has_objects_ || op.spec->blob_kernel;
    draws_ = draws_ || op.spec->random;
  }
  draws_ = draws_ || has_objects_;  // which may run nets of their own
  turns_ = net_turns(net_, inputs_);
  for (std::vector<size_t>& places : turns_.last_used)  // an output stays
    std::erase_if(places, [this](size_t i) { return place_in(outputs_, inputs_[i]) >= 0; });
}

std::string TapeNet::title() const { return fmt::format("net \"{}\"", net_.name()); }

// What the name holds after the net has run. Of an input that no operator names, a number below all values, its own.
int TapeNet::value_after(const std::string& name) const {
  const int blob = bound_.flow.find(name);
  return blob >= 0 ? bound_.flow.last(blob) : -2 - place_in(inputs_, name);
}

// Everything that is computed from the wanted inputs, and these.
std::set<int> TapeNet::dependents(const Mask& wanted) const {
  std::set<int> found;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const int blob = bound_.flow.find(inputs_[i]);
    if (wanted[i]) found.insert(blob >= 0 ? bound_.flow.first(blob) : value_after(inputs_[i]));
  }
  found.erase(-1);  // what is written before it is read
  for (size_t i = 0; i < bound_.ops.size(); ++i) {
    if (bound_.ops[i].spec->gradient_rule == GradientRule::stop) continue;
    const int op = static_cast<int>(i);
    if (std::ranges::none_of(bound_.flow.inputs(op), [&](int value) { return found.count(value) > 0; })) continue;
    for (const int value : bound_.flow.outputs(op))
      if (value >= 0) found.insert(value);
  }
  return found;
}

bool TapeNet::is_in(const std::set<int>& values, const std::string& name) const {
  return values.count(value_after(name)) > 0;
}

bool TapeNet::reaches_output(const Mask& needs) const {
  const std::set<int> dependents = this->dependents(needs);
  return std::ranges::any_of(outputs_, [&](const std::string& name) { return is_in(dependents, name); });
}

bool TapeNet::is_input(const std::string& name) const {
  const int i = place_in(inputs_, name);
  return i >= 0 && !overwritten_[i];
}

bool TapeNet::is_saved_by_name(const std::string& name) const {
  return is_input(name) || place_in(outputs_, name) >= 0;
}

std::string TapeNet::given_name(const std::string& output) const {
  std::string name = output + "_grad";
  while (bound_.flow.find(name) >= 0 || place_in(inputs_, name) >= 0) name = "given/" + name;
  return name;
}

namespace {

// The forward part has run, or will, as it is.
void check_unchanged(const NetDef& forward, const NetDef& both) {
  for (int i = 0; i < forward.op_size(); ++i) {
    const OperatorDef& op = forward.op(i);
    if (op.arg_size() == both.op(i).arg_size()) continue;
    throw Error(fmt::format("the gradient of operator {} ({}) of net \"{}\" reads the shape of an operand whose blob "
                            "a later operator may have given another",
                            i, op.type(), forward.name()),
                "let that operator write to another blob, or give this one the argument equal_shapes: 1");
  }
}

}  // namespace

TapeNet::Reads TapeNet::backward_part(const Mask& wanted, const std::vector<std::string>& targets) const {
  GradientRequest request;
  Reads reads;
  for (size_t t = 0; t < targets.size(); ++t) {
    request.targets.emplace_back(targets[t], given_name(targets[t]));
    reads.given[request.targets.back().second] = static_cast<int>(t);
  }
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (wanted[i]) request.wanted.insert(inputs_[i]);
  reads.net = net_;
  GradientResult result = add_gradient_operators(reads.net, request);
  check_unchanged(net_, reads.net);
  reads.net.mutable_op()->DeleteSubrange(0, result.first_gradient_op);
  reads.gradients = std::move(result.gradients);
  reads.values = std::move(result.kept);
  reads.names = read_from_outside(reads.net);
  reads.written = written_names(reads.net);
  for (const std::string& input : request.wanted)  // a gradient may be a forward value as it is
    if (const auto it = reads.gradients.find(input); it != reads.gradients.end())
      for (const std::string& name : {it->second.dense, it->second.indices, it->second.values})
        if (!name.empty() && reads.written.count(name) + reads.given.count(name) == 0) {
          if (place_in(reads.names, name) < 0) reads.names.push_back(name);
          reads.values.insert(name);
        }
  return reads;
}

const NetRecording& TapeNet::recording(const Mask& needs, const Mask& differentiable) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<NetRecording>& entry = recordings_[{needs, differentiable}];
  if (!entry) entry = make_recording(needs, differentiable);
  return *entry;
}

std::unique_ptr<NetRecording> TapeNet::make_recording(const Mask& needs, const Mask& differentiable) const {
  auto recording = std::make_unique<NetRecording>();
  NetRecording& r = *recording;
  r.needs = needs;
  r.saves_input.assign(inputs_.size(), false);
  r.saves_output.assign(outputs_.size(), false);
  const std::set<int> dependents = this->dependents(needs);
  std::vector<std::string> targets;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    r.depends.push_back(differentiable[k] && is_in(dependents, outputs_[k]));
    if (r.depends.back()) targets.push_back(outputs_[k]);
  }
  if (targets.empty()) return recording;
  const Reads reads = backward_part(needs, targets);
  for (const OperatorDef& op : reads.net.op()) r.keeps_workspace = r.keeps_workspace || op_spec(op.type()).blob_kernel;
  for (const std::string& name : reads.names) {
    if (reads.given.count(name) > 0) continue;
    r.types.push_back(name);  // of what others read by value, too
    if (reads.values.count(name) == 0) continue;
    r.kept.insert(name);
    if (is_input(name)) {
      r.saves_input[place_in(inputs_, name)] = true;
    } else if (const int k = place_in(outputs_, name); k >= 0) {
      r.saves_output[k] = true;
    } else if (!r.keeps_workspace) {
      r.hidden.push_back(name);
      r.depends.push_back(is_in(dependents, name));
    }
  }
  r.hidden_turns = net_turns(net_, r.hidden);
  for (const std::string& name : r.hidden) r.saved_late.push_back(may_have_alias(net_, name));
  return recording;
}

const NetGradient& TapeNet::gradient(const NetRecording& recording, const Mask& wanted, const Mask& present,
                                     bool recorded) const {
  const std::lock_guard lock(recording.mutex);
  std::unique_ptr<NetGradient>& entry = recording.gradients[{wanted, present, recorded}];
  if (!entry) entry = make_gradient(recording, wanted, present, recorded);
  return *entry;
}

TapeSource TapeNet::find(const NetRecording& recording, const std::map<std::string, int>& given,
                         const std::string& name, bool by_value) const {
  using Kind = TapeSource::Kind;
  if (const auto it = given.find(name); it != given.end()) return {Kind::gradient, it->second};
  const int type = place_in(recording.types, name);
  if (!by_value && type >= 0) return {Kind::type, type};
  if (is_input(name)) return {Kind::input, place_in(inputs_, name)};
  if (const int k = place_in(outputs_, name); k >= 0) return {Kind::output, k};
  const int k = place_in(recording.hidden, name);
  if (k >= 0) return {Kind::output, static_cast<int>(outputs_.size()) + k};
  require(recording.keeps_workspace, "{}: its gradient reads \"{}\", which was not saved", title(), name);
  return {Kind::workspace, 0};
}

std::unique_ptr<NetGradient> TapeNet::make_gradient(const NetRecording& r, const Mask& wanted, const Mask& present,
                                                    bool recorded) const {
  auto gradient = std::make_unique<NetGradient>();
  gradient->results.resize(inputs_.size());
  const std::set<int> dependents = this->dependents(wanted);
  std::vector<std::string> targets;
  std::vector<int> places;  // of targets among the node's outputs
  for (size_t k = 0; k < present.size(); ++k) {
    const std::string& name = k < outputs_.size() ? outputs_[k] : r.hidden[k - outputs_.size()];
    if (!present[k] || !r.depends[k] || !is_in(dependents, name)) continue;
    targets.push_back(name);
    places.push_back(static_cast<int>(k));
  }
  if (targets.empty()) return gradient;
  Reads reads = backward_part(wanted, targets);
  for (auto& [name, place] : reads.given) place = places[place];
  if (recorded && !r.keeps_workspace) reads.write_apart();
  std::vector<std::string> outputs;
  const auto result = [&](const std::string& name) -> TapeSource {
    if (name.empty()) return {};
    if (reads.written.count(name) == 0) return find(r, reads.given, name, true);
    if (place_in(outputs, name) < 0) outputs.push_back(name);
    return {TapeSource::Kind::made, place_in(outputs, name)};
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto found = reads.gradients.find(inputs_[i]);
    if (!wanted[i] || found == reads.gradients.end()) continue;
    const GradientName& g = found->second;
    gradient->results[i] = {result(g.dense), result(g.indices), result(g.values)};
  }
  if (outputs.empty()) return gradient;
  for (const std::string& name : reads.names)
    gradient->inputs.push_back(find(r, reads.given, name, reads.values.count(name) > 0));
  gradient->plan = std::make_shared<const TapeNet>(std::move(reads.net), reads.names, std::move(outputs));
  return gradient;
}

// TapeNet's runs: the net on variables, what it saves, and its node.

namespace {

// The net's outputs; undefined where operators on blobs have put something else.
std::vector<Tensor> outputs_of(const TapeNet& plan, NetRunner& runner) {
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
void drop_unread(const TapeNet& plan, const NetRecording& recording, Workspace& workspace) {
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

// What a capture is told of a run: the operators before, and their values as they are there.
class CapturedNet {
 public:
  CapturedNet(const TapeNet& plan, std::span<const Variable> inputs) : capture_(tape_state().capture) {
    if (!capture_) return;
    TapeCapture::Names names;
    for (size_t i = 0; i < inputs.size(); ++i) names[plan.inputs()[i]] = capture_->name_of(inputs[i].value());
    names_ = capture_->add_net(plan.net(), std::move(names));
  }
  void made(const std::string& blob, const Tensor& value) const {
    if (capture_ && value.storage() && !capture_->known(value)) capture_->shows(names_.at(blob), value);
  }
  void made(const std::shared_ptr<NetNode>& node) const {
    if (capture_ && node) node->note_types(*capture_, names_);
  }

 private:
  TapeCapture* capture_;
  TapeCapture::Names names_;
};

// With hooks on saved values: a hidden value goes through them as soon as no operator writes it any more, and leaves
// the workspace when the last one has read it.
class HiddenValues : public NetObserver {
 public:
  HiddenValues(const NetRecording& recording, Workspace& workspace, const Node& node, const CapturedNet& captured)
      : recording_(recording),
        workspace_(workspace),
        node_(node),
        captured_(captured),
        saved_(recording.hidden.size()) {}
  void before(const BoundOp&) override {}
  void after(const BoundOp& op) override {
    for (const size_t h : recording_.hidden_turns.last_written[op.index]) {
      if (recording_.saved_late[h]) continue;
      const Tensor& value = workspace_.fetch(recording_.hidden[h]);
      captured_.made(recording_.hidden[h], value);
      saved_[h] = SavedValue(value, &node_);
    }
    for (const size_t h : recording_.hidden_turns.last_used[op.index])
      if (saved_[h].holds()) workspace_.tensor(recording_.hidden[h]).drop_bytes();
  }
  std::vector<SavedValue> take() { return std::move(saved_); }

 private:
  const NetRecording& recording_;
  Workspace& workspace_;
  const Node& node_;
  const CapturedNet& captured_;
  std::vector<SavedValue> saved_;
};

// Asks for the inputs of a run one by one, when their turn comes.
class InputsInTurn : public NetObserver {
 public:
  InputsInTurn(const TapeNet& plan, const NetTurns& turns, NetRunner& runner, const TapeNet::TakeInput& take)
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
  const TapeNet& plan_;
  const NetTurns& turns_;
  NetRunner& runner_;
  const TapeNet::TakeInput& take_;
};

// What the workspace itself keeps; with hooks on saved values that goes through them, and the workspace is left empty.
std::vector<NetSaved::Kept> settle_workspace(const TapeNet& plan, const NetRecording& recording, Workspace& workspace,
                                             const Node& node) {
  drop_unread(plan, recording, workspace);
  std::vector<Tensor*> places;
  for (const std::string& name : workspace.names()) {
    Blob& blob = workspace.at(name);
    if (KeptState* state = blob.kept_state()) {
      const std::vector<Tensor*> kept = state->settle();
      places.insert(places.end(), kept.begin(), kept.end());
    }
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

void TapeNet::check_inputs(std::span<const Variable> inputs) const {
  require(inputs.size() == inputs_.size(), "{} has {} inputs, and gets {}", title(), inputs_.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].defined(), "{}: the input \"{}\" is undefined", title(), inputs_[i]);
    check_view(inputs[i]);
  }
}

void TapeNet::feed(NetRunner& runner, std::span<const Variable> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    runner.input(i) = overwritten_[i] ? inputs[i].value().clone() : inputs[i].value();
}

// What a run has made, and how it was recorded: a null node if no gradient can be wanted.
struct TapeNet::Made {
  std::vector<Tensor> outputs;
  const NetRecording* recording = nullptr;
  std::shared_ptr<NetNode> node = nullptr;
};

// The node is there before the net runs: what is saved on the way is saved for it.
TapeNet::Made TapeNet::run_tensors(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
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
  const CapturedNet captured(*this, inputs);
  feed(*runner, inputs);
  NetSaved saved;
  std::optional<HiddenValues> hidden;
  if (has_gradient(made.recording)) {
    made.node = std::make_shared<NetNode>(shared_from_this(), *made.recording, gradient_edges(inputs), draw, place);
    saved.inputs = saved_inputs(*made.recording, inputs, *made.node);
    if (tape_state().hooks) hidden.emplace(*made.recording, workspace, *made.node, captured);
  }
  runner->run(draw.seed, draw.number, nullptr, hidden ? &*hidden : nullptr);
  made.outputs = outputs_of(*this, *runner);
  for (size_t k = 0; k < made.outputs.size(); ++k) captured.made(outputs_[k], made.outputs[k]);
  if (made.node) {
    for (const std::string& name : made.recording->hidden) captured.made(name, workspace.fetch(name));
    save_results(*made.recording, made.outputs, workspace, hidden ? hidden->take() : std::vector<SavedValue>{},
                 *made.node, saved);
    made.node->keep(std::move(saved), output_types(*made.recording, made.outputs, workspace));
    captured.made(made.node);
  }
  runner->clear();
  runners.put_back(std::move(runner));
  return made;
}

// Where objects may be among the outputs, what is to be kept is known only after the run, so nothing is let go of. If
// no gradient can be wanted, operators on blobs keep nothing for it either.
TapeNet::Made TapeNet::run_objects(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  refuse_captured(title(), "it has operators on blobs; capture a net of operators on tensors");
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

std::vector<Variable> TapeNet::run_checked(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  check_inputs(inputs);
  if (moves(inputs)) return run_moving(inputs, draw, place);
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

NetTangents TapeNet::make_tangents(const Mask& moved) const {
  NetDef net = net_;
  TangentRequest request;
  std::vector<std::string> names = inputs_;
  for (size_t i = 0; i < moved.size(); ++i)
    if (moved[i]) request.given[inputs_[i]] = "";
  request.wanted = {outputs_.begin(), outputs_.end()};
  const TangentResult result = add_tangent_operators(net, request);
  // The tangent of an input that is an output as well is that of its first value, and of its last one.
  std::vector<std::string> given, outputs = outputs_;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (!moved[i]) continue;
    require(std::ranges::count(outputs_, inputs_[i]) == 0,
            "{} has \"{}\" as an input and an output, which forward mode does not allow", title(), inputs_[i]);
    given.push_back(result.tangents.at(inputs_[i]));
  }
  names.insert(names.end(), given.begin(), given.end());
  NetTangents made;
  for (const std::string& output : outputs_) {
    TapeSource& source = made.results.emplace_back();
    const auto tangent = result.tangents.find(output);
    if (tangent == result.tangents.end()) continue;
    if (const int i = place_in(given, tangent->second); i >= 0) {
      source = {TapeSource::Kind::input, static_cast<int>(inputs_.size()) + i};
      continue;
    }
    int place = place_in(outputs, tangent->second);
    if (place < 0) {
      place = static_cast<int>(outputs.size());
      outputs.push_back(tangent->second);
    }
    source = {TapeSource::Kind::made, place};
  }
  net.clear_external_output();
  made.plan = std::make_shared<const TapeNet>(std::move(net), std::move(names), std::move(outputs));
  return made;
}

const NetTangents& TapeNet::tangents(const Mask& moved) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<NetTangents>& known = tangents_[moved];
  if (!known) known = std::make_unique<NetTangents>(make_tangents(moved));
  return *known;
}

// As with operators, see core/autograd/tape_tangents.h.
std::vector<Variable> TapeNet::run_moving(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  const std::shared_ptr<LevelState> level = moving_level(inputs);
  const BelowLevel below(level->number);
  Mask moved;
  std::vector<Variable> given(inputs.begin(), inputs.end());
  for (const Variable& v : inputs) {
    const Variable tangent = tangent_of(v, *level);
    moved.push_back(tangent.defined());
    if (tangent.defined()) given.push_back(tangent);
  }
  const NetTangents& tangents = this->tangents(moved);
  std::vector<Variable> made = tangents.plan->run(given, draw, place);
  std::set<Node*> nodes;
  for (const Variable& v : made)
    if (v.defined() && v.grad_fn()) nodes.insert(v.grad_fn().get());
  for (Node* node : nodes)
    if (auto* net = dynamic_cast<NetNode*>(node)) net->set_moving(level);
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const TapeSource& source = tangents.results[k];
    if (source.kind == TapeSource::Kind::none || !made[k].defined() || !is_floating(made[k].dtype())) continue;
    set_tangent(made[k], level, source.kind == TapeSource::Kind::input ? given[source.index] : made[source.index]);
  }
  made.resize(outputs_.size());
  return made;
}

std::vector<Tensor> TapeNet::run_taking(const TakeInput& take, const NetDraw& draw, Place place) const {
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

std::vector<Variable> TapeNet::run(std::span<const Variable> inputs, const NetDraw& draw, Place place) const {
  try {
    return run_checked(inputs, draw, place);
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
}

}  // namespace stepnet::autograd
