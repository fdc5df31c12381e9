#include "core/autograd/net/net_plan.h"

#include <algorithm>

#include "core/passes/gradients.h"

namespace stepnet::autograd {
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
struct NetPlan::Reads {
  NetDef net;
  std::map<std::string, GradientName> gradients;
  std::map<std::string, int> given;  // name of a target's gradient, to its place among the targets
  std::vector<std::string> names;    // gradients of targets too
  std::set<std::string> values, written;

  void write_apart();
};

// Gives a name of its own to everything that an operator writes, unless it must be written in place.
void NetPlan::Reads::write_apart() {
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

NetPlan::NetPlan(NetDef net, std::vector<std::string> inputs, std::vector<std::string> outputs)
    : net_(checked(std::move(net), inputs, outputs)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      versions_(net_) {
  for (const std::string& name : inputs_)
    overwritten_.push_back(versions_.has(name) && versions_.last(name) != VersionedBlob{name, 0});
  for (int i = 0; i < versions_.size(); ++i) {
    has_objects_ = has_objects_ || versions_.op(i).op.spec->blob_kernel;
    draws_ = draws_ || versions_.op(i).op.spec->random;
  }
  draws_ = draws_ || has_objects_;  // which may run nets of their own
  turns_ = net_turns(net_, inputs_);
  for (std::vector<size_t>& places : turns_.last_used)  // an output stays
    std::erase_if(places, [this](size_t i) { return place_in(outputs_, inputs_[i]) >= 0; });
}

std::string NetPlan::title() const { return fmt::format("net \"{}\"", net_.name()); }

// Everything that is computed from the wanted inputs, and these.
std::set<VersionedBlob> NetPlan::dependents(const Mask& wanted) const {
  std::set<VersionedBlob> found;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (wanted[i]) found.insert({inputs_[i], 0});
  for (int i = 0; i < versions_.size(); ++i) {
    const VersionedNet::Op& op = versions_.op(i);
    if (op.op.spec->gradient_rule == GradientRule::stop) continue;
    const auto is_found = [&](const VersionedBlob& blob) { return found.count(blob) > 0; };
    if (!std::ranges::any_of(op.inputs, is_found)) continue;
    for (const VersionedBlob& blob : op.outputs)
      if (!blob.name.empty()) found.insert(blob);
  }
  return found;
}

bool NetPlan::is_in(const std::set<VersionedBlob>& blobs, const std::string& name) const {
  return blobs.count(versions_.has(name) ? versions_.last(name) : VersionedBlob{name, 0}) > 0;
}

bool NetPlan::reaches_output(const Mask& needs) const {
  const std::set<VersionedBlob> dependents = this->dependents(needs);
  return std::ranges::any_of(outputs_, [&](const std::string& name) { return is_in(dependents, name); });
}

bool NetPlan::is_input(const std::string& name) const {
  const int i = place_in(inputs_, name);
  return i >= 0 && !overwritten_[i];
}

bool NetPlan::is_saved_by_name(const std::string& name) const {
  return is_input(name) || place_in(outputs_, name) >= 0;
}

std::string NetPlan::given_name(const std::string& output) const {
  std::string name = output + "_grad";
  while (versions_.has(name) || place_in(inputs_, name) >= 0) name = "given/" + name;
  return name;
}

NetPlan::Reads NetPlan::backward_part(const Mask& wanted, const std::vector<std::string>& targets) const {
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
  reads.net.mutable_op()->DeleteSubrange(0, result.first_gradient_op);
  reads.gradients = std::move(result.gradients);
  reads.values = std::move(result.kept);
  std::set<std::string> seen;
  const auto read = [&](const std::string& name) {
    if (!name.empty() && reads.written.count(name) == 0 && seen.insert(name).second) reads.names.push_back(name);
  };
  for (const OperatorDef& op : reads.net.op()) {
    for (const std::string& name : op.input()) read(name);
    for (const std::string& name : op.output()) reads.written.insert(name);
  }
  for (const std::string& input : request.wanted)  // a gradient may be a forward value as it is
    if (const auto it = reads.gradients.find(input); it != reads.gradients.end())
      for (const std::string& name : {it->second.dense, it->second.indices, it->second.values})
        if (!name.empty() && reads.written.count(name) + reads.given.count(name) == 0) {
          read(name);
          reads.values.insert(name);
        }
  return reads;
}

const NetRecording& NetPlan::recording(const Mask& needs, const Mask& differentiable) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<NetRecording>& entry = recordings_[{needs, differentiable}];
  if (!entry) entry = make_recording(needs, differentiable);
  return *entry;
}

std::unique_ptr<NetRecording> NetPlan::make_recording(const Mask& needs, const Mask& differentiable) const {
  auto recording = std::make_unique<NetRecording>();
  NetRecording& r = *recording;
  r.needs = needs;
  r.saves_input.assign(inputs_.size(), false);
  r.saves_output.assign(outputs_.size(), false);
  const std::set<VersionedBlob> dependents = this->dependents(needs);
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
    if (reads.values.count(name) == 0) {
      r.types.push_back(name);
      continue;
    }
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

const NetGradient& NetPlan::gradient(const NetRecording& recording, const Mask& wanted, const Mask& present,
                                     bool recorded) const {
  const std::lock_guard lock(recording.mutex);
  std::unique_ptr<NetGradient>& entry = recording.gradients[{wanted, present, recorded}];
  if (!entry) entry = make_gradient(recording, wanted, present, recorded);
  return *entry;
}

NetValue NetPlan::find(const NetRecording& recording, const std::map<std::string, int>& given, const std::string& name,
                       bool by_value) const {
  using Kind = NetValue::Kind;
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

std::unique_ptr<NetGradient> NetPlan::make_gradient(const NetRecording& r, const Mask& wanted, const Mask& present,
                                                    bool recorded) const {
  auto gradient = std::make_unique<NetGradient>();
  gradient->results.resize(inputs_.size());
  const std::set<VersionedBlob> dependents = this->dependents(wanted);
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
  const auto result = [&](const std::string& name) -> NetValue {
    if (name.empty()) return {};
    if (reads.written.count(name) == 0) return find(r, reads.given, name, true);
    if (place_in(outputs, name) < 0) outputs.push_back(name);
    return {NetValue::Kind::made, place_in(outputs, name)};
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
  gradient->plan = std::make_shared<const NetPlan>(std::move(reads.net), reads.names, std::move(outputs));
  return gradient;
}

}  // namespace stepnet::autograd
