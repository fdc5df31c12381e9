// Derivatives of RecurrentNetworkGradient, of any order, by networks.
//
// A network's gradients are J^T g, where J is the Jacobian of its outputs and g what is given for these. Where the
// network's inputs x move along v, its outputs move by J v, which is what the network with tangents computes
// (recurrent/form/tangents.h). So
//   - the gradient of <J^T g, v> = <g, J v> with respect to g is J v, and with respect to x it is the gradient of the
//     network with tangents where g is given for the tangents;
//   - the tangent of J^T g, where x moves along v and g along w, is the gradient of the network with tangents where g
//     is given for the tangents, and w for the values.
// Both are networks and gradients of networks again.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/net/expansions.h"
#include "core/passes/network_rules.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/read_back.h"
#include "recurrent/form/spec.h"
#include "recurrent/form/tangents.h"
#include "stepnet/bound_op.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

using Fresh = std::function<std::string(const std::string& base)>;

// What a RecurrentNetworkGradient stands for: the network, and whose gradients are given and made.
class GradientOfNetwork {
 public:
  GradientOfNetwork(const OperatorDef& op, const Fresh& fresh) : op_(op), fresh_(fresh) {
    const BoundOp bound = bind_op(op, "", 0);
    spec_ = parse_recurrent(*static_cast<const RecurrentArgs*>(bound.args.get()), op, op.input_size());
    given_ = static_cast<int>(spec_.outputs_with_grads.size());
    const auto outputs = static_cast<int>(spec_.views.size() + spec_.outputs.size()) + 1;
    inputs_ = op.input_size() - given_ - outputs;
    require(inputs_ > 0,
            "it has {} inputs, but takes {} gradients of outputs, the inputs of RecurrentNetwork and its {} "
            "outputs",
            op.input_size(), given_, outputs);
    make_network();
    find_roles();
  }

  int given() const { return given_; }
  const std::string& given_name(int k) const { return op_.input(k); }  // "": none
  // The network's output that gradient k is of.
  const std::string& shown(int k) const {
    const int output = spec_.outputs_with_grads[k];
    return renamed_.at(op_.input(given_ + inputs_ + output));
  }
  // By output of the operator: the name of the network's input whose gradient it is, "" for none. No two are the same.
  const std::vector<std::string>& roles() const { return roles_; }
  bool is_input(int i) const { return i >= given_ && i < given_ + inputs_; }

  // Of inputs, for the network to read.
  const std::vector<OperatorDef>& copies() const { return copies_; }
  // The network with tangents. `tangent`: of the network's inputs; `values` and `tangents`: the outputs of which these
  // are needed.
  TangentOperators move(const std::function<std::string(const std::string&)>& tangent,
                        const std::set<std::string>& values, const std::set<std::string>& tangents) const {
    TangentOperators moved =
        move_network({network_, tangent, [&](const auto& name) { return tangents.count(name) > 0; }, fresh_});
    for (const auto& [before, name] : renamed_)
      if (values.count(name) == 0) drop_output(moved.ops.back(), name);
    return moved;
  }

  std::string source_of(const std::string& role) const {
    const auto copy = std::ranges::find_if(copies_, [&](const OperatorDef& op) { return op.output(0) == role; });
    return copy == copies_.end() ? role : copy->input(0);
  }

 private:
  // In short form, under names that are free.
  void make_network() {
    OperatorDef full = op_;
    full.set_type(kRecurrentNetwork);
    full.clear_is_gradient_op();
    full.clear_input();
    full.clear_output();
    for (int i = 0; i < inputs_; ++i) full.add_input(op_.input(given_ + i));
    for (int i = given_ + inputs_; i < op_.input_size(); ++i) full.add_output(op_.input(i));
    network_ = network_beside(short_form_of(full, false), fresh_, renamed_);
  }

  // An input may be a sequence, a parameter and the initial value of states at once, and the operator has an output for
  // each: all but one read a copy.
  void find_roles() {
    RecurrentDef& def = *network_.MutableExtension(recurrent);
    const int params = static_cast<int>(spec_.params.size()), states = static_cast<int>(spec_.states.size());
    std::set<std::string> seen;
    roles_.resize(1 + params + states + spec_.more_sequences.size());
    require(op_.output_size() <= static_cast<int>(roles_.size()), "it has {} outputs, but {} gradients to give",
            op_.output_size(), roles_.size());
    for (int p = 0; p < params; ++p) {
      roles_[1 + p] = network_input(spec_.params[p].input);
      require(seen.insert(roles_[1 + p]).second, "\"param\" has \"{}\" twice", roles_[1 + p]);
    }
    for (int s = 0; s < states; ++s) {
      StateLink& state = *def.mutable_state(s);
      if (!state.has_initial()) continue;
      state.set_initial(role_of(state.initial(), seen));
      roles_[1 + params + s] = state.initial();
    }
    set_sequence(0, 0, seen, def);
    for (size_t i = 0; i < spec_.more_sequences.size(); ++i)
      set_sequence(spec_.more_sequences[i], 1 + params + states + static_cast<int>(i), seen, def);
  }

  std::string network_input(int i) const { return op_.input(given_ + i); }

  void set_sequence(int input, int role, std::set<std::string>& seen, RecurrentDef& def) {
    const auto sequence = std::ranges::find(*def.mutable_sequence(), network_input(input), &SequenceLink::outer);
    if (sequence == def.mutable_sequence()->end()) return;
    sequence->set_outer(role_of(sequence->outer(), seen));
    roles_[role] = sequence->outer();
  }

  std::string role_of(const std::string& name, std::set<std::string>& seen) {
    if (seen.insert(name).second) return name;
    OperatorDef copy = copy_op(name, fresh_(name + "_copy"));
    if (op_.has_device_option()) *copy.mutable_device_option() = op_.device_option();
    network_.add_input(copy.output(0));
    copies_.push_back(copy);
    return copy.output(0);
  }

  const OperatorDef& op_;
  const Fresh& fresh_;
  RecurrentSpec spec_;
  int given_ = 0, inputs_ = 0;
  OperatorDef network_;
  std::map<std::string, std::string> renamed_;  // outputs
  std::vector<std::string> roles_;
  std::vector<OperatorDef> copies_;
};

// Appends what computes the gradients of `wanted`; what that writes gets free names. Returns the gradients' names.
std::map<std::string, std::string> add_gradients(NetDef& net, const GradientRequest& request, const Fresh& fresh) {
  GradientResult result;
  try {
    result = add_gradient_operators(net, request);
  } catch (const NoDependence&) {
    return {};
  }
  std::map<std::string, std::string> names;
  for (int i = result.first_gradient_op; i < net.op_size(); ++i) {
    OperatorDef& op = *net.mutable_op(i);
    for (std::string& name : *op.mutable_input())
      if (const auto found = names.find(name); found != names.end()) name = found->second;
    for (std::string& name : *op.mutable_output()) {
      if (name.empty()) continue;
      if (names.count(name) == 0) names[name] = fresh(name);
      name = names[name];
    }
  }
  std::map<std::string, std::string> gradients;
  for (const auto& [blob, gradient] : result.gradients) {
    if (request.wanted.count(blob) == 0) continue;
    require(!gradient.is_sparse(), "the gradient of \"{}\" is sparse", blob);
    const auto found = names.find(gradient.dense);
    gradients[blob] = found == names.end() ? gradient.dense : found->second;
  }
  return gradients;
}

NetDef net_of(const TangentOperators& moved) {
  NetDef net;
  net.set_name("moved");
  for (const OperatorDef& op : moved.ops) *net.add_op() = op;
  expand_net(net);
  return net;
}

GradientOperators differentiate(const GradientCall& call) {
  const GradientOfNetwork of(call.op, call.fresh);
  call.check_unchanged(of.given());
  std::map<std::string, std::string> tangents;  // by the network's input
  for (size_t o = 0; o < call.gradients.size(); ++o)
    if (!call.gradients[o].empty()) tangents[of.roles().at(o)] = call.gradients[o];
  GradientRequest request;
  for (size_t i = 0; i < call.wanted.size(); ++i)
    if (call.wanted[i] && of.is_input(static_cast<int>(i))) request.wanted.insert(call.op.input(static_cast<int>(i)));
  std::set<std::string> shown;
  for (int k = 0; k < of.given(); ++k)
    if (call.wanted[k] || (!request.wanted.empty() && !of.given_name(k).empty())) shown.insert(of.shown(k));
  TangentOperators moved = of.move(
      [&](const std::string& input) {
        const auto found = tangents.find(input);
        return found == tangents.end() ? "" : found->second;
      },
      {}, shown);
  moved.ops.insert(moved.ops.begin(), of.copies().begin(), of.copies().end());
  GradientOperators made{.ops = {}, .gradients = std::vector<std::string>(call.wanted.size())};
  for (int k = 0; k < of.given(); ++k) {
    const auto tangent = moved.tangents.find(of.shown(k));
    if (tangent == moved.tangents.end() || of.given_name(k).empty()) continue;
    if (call.wanted[k]) made.gradients[k] = tangent->second;
    request.targets.emplace_back(tangent->second, of.given_name(k));
  }
  NetDef net = net_of(moved);
  if (!request.targets.empty() && !request.wanted.empty()) {
    const std::map<std::string, std::string> gradients = add_gradients(net, request, call.fresh);
    // An input that stands there several times gets its whole gradient once.
    std::set<std::string> done;
    for (size_t i = 0; i < call.wanted.size(); ++i) {
      const std::string& name = call.op.input(static_cast<int>(i));
      if (!call.wanted[i] || !of.is_input(static_cast<int>(i)) || !done.insert(name).second) continue;
      if (const auto found = gradients.find(name); found != gradients.end()) made.gradients[i] = found->second;
    }
  }
  if (std::ranges::any_of(made.gradients, [](const std::string& name) { return !name.empty(); }))
    made.ops = {net.op().begin(), net.op().end()};
  return made;
}

TangentOperators move_gradient(const TangentCall& call) {
  const GradientOfNetwork of(call.op, call.fresh);
  call.check_unchanged(of.given());
  std::set<std::string> values, tangents;
  for (int k = 0; k < of.given(); ++k) {
    if (of.given_name(k).empty()) continue;
    tangents.insert(of.shown(k));
    if (!call.tangent(of.given_name(k)).empty()) values.insert(of.shown(k));
  }
  TangentOperators moved =
      of.move([&](const std::string& input) { return call.tangent(of.source_of(input)); }, values, tangents);
  GradientRequest request;
  for (int k = 0; k < of.given(); ++k) {
    if (of.given_name(k).empty()) continue;
    if (const auto tangent = moved.tangents.find(of.shown(k)); tangent != moved.tangents.end())
      request.targets.emplace_back(tangent->second, of.given_name(k));
    if (const std::string given = call.tangent(of.given_name(k)); !given.empty())
      request.targets.emplace_back(of.shown(k), given);
  }
  for (int o = 0; o < call.op.output_size(); ++o)
    if (const std::string& name = call.op.output(o); !name.empty() && call.is_needed(name))
      request.wanted.insert(of.roles().at(o));
  TangentOperators made{.ops = {call.op}, .tangents = {}};
  NetDef net = net_of(moved);
  const std::map<std::string, std::string> gradients = add_gradients(net, request, call.fresh);
  for (int o = 0; o < call.op.output_size(); ++o)
    if (const auto found = gradients.find(of.roles().at(o)); found != gradients.end())
      if (!call.op.output(o).empty()) made.tangents[call.op.output(o)] = found->second;
  if (made.tangents.empty()) return made;
  // Each role has a gradient of its own here, so that copies are no part of what is differentiated.
  made.ops.insert(made.ops.end(), of.copies().begin(), of.copies().end());
  for (OperatorDef& op : *net.mutable_op()) made.ops.push_back(std::move(op));
  return made;
}

// Not those of the network's outputs, which it is given to find what the network kept.
bool reads_tangent(const OperatorDef& op, int input) {
  const BoundOp bound = bind_op(op, "", 0);
  const auto& args = *static_cast<const RecurrentArgs*>(bound.args.get());
  const size_t outputs = args.alias_dst.size() + args.output_external.size() + 1;
  return input + static_cast<int>(outputs) < op.input_size();
}

REGISTER(recurrent_gradient_rules) {
  return entry([] {
    add_gradient_rule(kRecurrentNetworkGradient, differentiate);
    add_tangent_rule(kRecurrentNetworkGradient, move_gradient, reads_tangent);
  });
}

}  // namespace
}  // namespace stepnet
