// Forward mode through a RecurrentNetwork: a network whose step net computes tangents beside values, with sequences,
// states and outputs for both.
#include "recurrent/form/tangents.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/net/dataflow.h"
#include "core/operator/nets_inside.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/read_back.h"
#include "recurrent/form/spec.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

OperatorDef zeros_like(const std::string& blob, const std::string& name) {
  OperatorDef op;
  op.set_type(op_with_role(Role::fill_like).type);
  op.add_input(blob);
  op.add_output(name);
  *op.add_arg() = make_arg("value", 0.0F);
  return op;
}

// One network in short form on its way to one that computes tangents, too.
class MovedNetwork {
 public:
  explicit MovedNetwork(const TangentCall& call) : call_(call), op_(call.op) {
    for (const SequenceLink& s : def().sequence()) inside_.insert(s.inner());
    for (const StateLink& s : def().state()) inside_.insert(s.input());
    inside_.insert(def().timestep());
    names_ = names_in(def().step_net());
    names_.insert(inside_.begin(), inside_.end());
  }

  TangentOperators run() {
    find_given();
    find_moving_states();
    NetDef step = def().step_net();
    const std::map<std::string, std::string> tangents = differentiate(step);
    *def().mutable_step_net() = step;
    names_.merge(names_in(step));
    add_sequences();
    add_states(tangents);
    add_outputs(tangents);
    keep_products_apart();
    made_.ops.push_back(std::move(op_));
    return std::move(made_);
  }

 private:
  RecurrentDef& def() { return *op_.MutableExtension(recurrent); }

  std::string fresh_inside(const std::string& base) {
    std::string name = base;
    for (int n = 1; !names_.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
    return name;
  }

  // The step net has a blob of its own with this name.
  bool hides(const std::string& outside) {
    return inside_.count(outside) > 0 || written_names(def().step_net()).count(outside) > 0;
  }

  std::string under_another_name(const std::string& outside) {
    std::string name = call_.fresh(outside + "_outside");
    while (names_.count(name) > 0) name = call_.fresh(name + "_outside");
    OperatorDef copy = copy_op(outside, name);
    if (op_.has_device_option()) *copy.mutable_device_option() = op_.device_option();
    made_.ops.push_back(std::move(copy));
    return name;
  }

  void move_inside(const std::string& input) {
    if (given_.count(input) == 0) given_[input] = fresh_inside(input + "_tangent");
  }

  // Of the step net's inputs: the tangent's name outside, or one for what links give.
  void find_given() {
    for (const std::string& name : read_from_outside(def().step_net())) {
      std::string tangent = inside_.count(name) > 0 ? "" : call_.tangent(name);
      if (tangent.empty()) continue;
      if (hides(tangent)) tangent = under_another_name(tangent);
      given_[name] = tangent;
      names_.insert(tangent);
      add_input(name);
      add_input(tangent);
    }
    for (const SequenceLink& s : def().sequence())
      if (!call_.tangent(s.outer()).empty()) move_inside(s.inner());
    for (const StateLink& s : def().state())
      if (s.has_initial() && !call_.tangent(s.initial()).empty()) move_inside(s.input());
  }

  // A state that depends on what moves moves, too, from the next timestep on.
  void find_moving_states() {
    for (bool found = true; found;) {
      found = false;
      NetDef step = def().step_net();
      const std::map<std::string, std::string> tangents = differentiate(step);
      for (const StateLink& s : def().state()) {
        if (tangents.count(s.output()) == 0 || given_.count(s.input()) > 0) continue;
        move_inside(s.input());
        found = true;
      }
    }
  }

  // Puts tangents into the step net. Returns those of its inputs, and of its blobs that states and outputs show.
  std::map<std::string, std::string> differentiate(NetDef& step) const {
    TangentRequest request;
    request.given = given_;
    request.fixed_storages = true;
    const std::set<std::string> named = names_in(step);
    for (auto it = request.given.begin(); it != request.given.end();)
      it = named.count(it->first) > 0 ? std::next(it) : request.given.erase(it);
    for (const StateLink& s : op_.GetExtension(recurrent).state())
      if (named.count(s.output()) > 0) request.wanted.insert(s.output());
    for (const OutputLink& o : op_.GetExtension(recurrent).output())
      if (named.count(o.inner()) > 0) request.wanted.insert(o.inner());
    std::map<std::string, std::string> tangents = add_short_tangent_operators(step, request).tangents;
    tangents.insert(given_.begin(), given_.end());
    return tangents;
  }

  static std::set<std::string> names_in(const NetDef& net) {
    std::set<std::string> names;
    for (const OperatorDef& op : net.op()) {
      names.insert(op.input().begin(), op.input().end());
      names.insert(op.output().begin(), op.output().end());
    }
    return names;
  }

  void add_input(const std::string& name) {
    if (std::ranges::count(op_.input(), name) == 0) op_.add_input(name);
  }

  std::string add_output(const std::string& shown) {
    const std::string name = call_.fresh(shown + "_tangent");
    op_.add_output(name);
    made_.tangents[shown] = name;
    return name;
  }

  void add_sequences() {
    const int count = def().sequence_size();
    for (int i = 0; i < count; ++i) {
      const auto moved = given_.find(def().sequence(i).inner());
      if (moved == given_.end()) continue;
      const std::string tangent = call_.tangent(def().sequence(i).outer());
      SequenceLink& sequence = *def().add_sequence();
      sequence.set_outer(tangent);
      sequence.set_inner(moved->second);
      add_input(tangent);
    }
  }

  void add_states(const std::map<std::string, std::string>& tangents) {
    const int count = def().state_size();
    for (int i = 0; i < count; ++i) {
      const StateLink state = def().state(i);
      if (given_.count(state.input()) == 0) continue;
      StateLink& moved = *def().add_state();
      moved.set_input(given_.at(state.input()));
      moved.set_output(output_tangent(state.output(), tangents));
      set_first(state, moved);
      if (state.has_all() && call_.is_needed(state.all())) moved.set_all(add_output(state.all()));
      if (state.has_last() && call_.is_needed(state.last())) moved.set_last(add_output(state.last()));
    }
  }

  std::string output_tangent(const std::string& output, const std::map<std::string, std::string>& tangents) {
    if (const auto found = tangents.find(output); found != tangents.end()) return inside(found->second);
    const std::string zeros = fresh_inside(output + "_tangent");
    *def().mutable_step_net()->add_op() = zeros_like(output, zeros);
    return zeros;
  }

  // The tangent as a blob that the step net names: a parameter that it shows as it is may be read by no operator.
  std::string inside(const std::string& tangent) {
    NetDef& step = *def().mutable_step_net();
    const bool is_linked = std::ranges::any_of(
        given_, [&](const auto& given) { return given.second == tangent && inside_.count(given.first) > 0; });
    if (is_linked || names_in(step).count(tangent) > 0) return tangent;
    const std::string shown = fresh_inside(tangent + "_shown");
    *step.add_op() = copy_op(tangent, shown);
    return shown;
  }

  void set_first(const StateLink& state, StateLink& moved) {
    if (!state.has_initial()) {
      *moved.mutable_size() = state.size();
      return;
    }
    std::string first = call_.tangent(state.initial());
    if (first.empty()) {
      first = call_.fresh(state.initial() + "_tangent");
      made_.ops.push_back(zeros_like(state.initial(), first));
      if (op_.has_device_option()) *made_.ops.back().mutable_device_option() = op_.device_option();
    }
    moved.set_initial(first);
    add_input(first);
  }

  void add_outputs(const std::map<std::string, std::string>& tangents) {
    const int count = def().output_size();
    for (int i = 0; i < count; ++i) {
      const OutputLink output = def().output(i);
      const auto tangent = tangents.find(output.inner());
      if (tangent == tangents.end() || !call_.is_needed(output.outer())) continue;
      OutputLink& moved = *def().add_output();
      moved.set_inner(inside(tangent->second));
      moved.set_outer(add_output(output.outer()));
    }
  }

  // What could be merged among the values was merged before. A product by a weight and its tangent below each other
  // would have its whole gradient computed where only the weight's is wanted, as it is for a Hessian times a vector.
  void keep_products_apart() {
    const auto passes = std::ranges::find(*op_.mutable_arg(), "disabled_passes", &Argument::name);
    Argument& disabled = passes == op_.mutable_arg()->end() ? *op_.add_arg() : *passes;
    disabled.set_name("disabled_passes");
    if (!contains(disabled.strings(), "merge")) disabled.add_strings("merge");
  }

  const TangentCall& call_;
  OperatorDef op_;
  std::set<std::string> inside_;              // names that stand for blobs of the step net, not of the net outside
  std::set<std::string> names_;               // that the step net may not use again
  std::map<std::string, std::string> given_;  // see find_given
  TangentOperators made_;
};

TangentOperators move_full_form(const TangentCall& call) {
  OperatorDef op = short_form_of(call.op, call.in_step_net);
  const bool has_scratch = call.op.output_size() > op.output_size();
  if (!has_scratch || !call.is_read(call.op.output(call.op.output_size() - 1))) {
    TangentOperators moved = move_network({op, call.tangent, call.is_needed, call.fresh});
    return moved.tangents.empty() ? TangentOperators{.ops = {call.op}, .tangents = {}} : std::move(moved);
  }
  // Another operator reads what this one keeps, as its gradient does: it stays, and the one that moves stands beside
  // it.
  std::map<std::string, std::string> renamed, before;
  op = network_beside(std::move(op), call.fresh, renamed);
  for (const auto& [name, beside] : renamed) before[beside] = name;
  const TangentOperators moved = move_network(
      {op, call.tangent, [&](const std::string& name) { return call.is_needed(before.at(name)); }, call.fresh});
  TangentOperators made{.ops = {call.op}, .tangents = {}};
  if (moved.tangents.empty()) return made;
  for (const auto& [name, tangent] : moved.tangents) made.tangents[before.at(name)] = tangent;
  made.ops.insert(made.ops.end(), moved.ops.begin(), moved.ops.end());
  for (const auto& [name, beside] : renamed) drop_output(made.ops.back(), beside);
  return made;
}

REGISTER(recurrent_tangents) {
  return entry([] { add_tangent_rule(kRecurrentNetwork, move_full_form); });
}

}  // namespace

TangentOperators move_network(const TangentCall& call) { return MovedNetwork(call).run(); }

OperatorDef network_beside(OperatorDef network, const std::function<std::string(const std::string& base)>& fresh,
                           std::map<std::string, std::string>& renamed) {
  const std::string scope = network.name().empty() ? network.output(0) + "_rnn" : network.name();
  network.set_name(fresh(scope + "_moved"));
  for (std::string& name : *network.mutable_output()) {
    renamed[name] = fresh(name + "_again");
    name = renamed[name];
  }
  rename_in_short_form(*network.MutableExtension(recurrent), renamed);
  return network;
}

void drop_output(OperatorDef& network, const std::string& name) {
  const auto last = std::remove(network.mutable_output()->begin(), network.mutable_output()->end(), name);
  network.mutable_output()->erase(last, network.mutable_output()->end());
  RecurrentDef& def = *network.MutableExtension(recurrent);
  for (StateLink& state : *def.mutable_state()) {
    if (state.all() == name) state.clear_all();
    if (state.last() == name) state.clear_last();
  }
  auto& outputs = *def.mutable_output();
  outputs.erase(std::remove_if(outputs.begin(), outputs.end(), [&](const OutputLink& o) { return o.outer() == name; }),
                outputs.end());
}

}  // namespace stepnet
