#include "recurrent/builder.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/bound_op.h"
#include "core/passes/gradients.h"
#include "recurrent/counters.h"

namespace stepnet {
namespace {

using Names = std::set<std::string>;

template <class Range>
bool contains(const Range& range, const std::string& name) {
  return std::find(range.begin(), range.end(), name) != range.end();
}

struct BuiltLink {
  std::string internal, external;
  int offset = 0;
};

// Everything about one operator while it is being expanded.
struct Expansion {
  OperatorDef& op;
  RecurrentDef def = {};
  std::string scope = {};
  NetDef step = {};
  Names written = {};                          // by the step net
  Names taken = {};                            // every name in either step net
  std::vector<std::string> references = {};    // read by the step net, provided by nobody inside
  std::vector<std::string> state_output = {};  // per state, the step blob linked to the state after the step
  std::vector<BuiltLink> links = {}, backward_links = {};
  Names spread = {};  // step blobs that only write a state's output once more
  NetDef backward = {};
  std::vector<std::pair<std::string, std::string>> params = {};  // reference, its gradient in the backward step net

  std::string state_name(int i) const { return scope + "/" + def.state(i).input() + "_states"; }
  std::string fresh(const std::string& base) {
    std::string name = base;
    for (int n = 1; taken.count(name) > 0; ++n) name = fmt::format("{}_{}", base, n);
    taken.insert(name);
    return name;
  }
};

void check_inputs_are_distinct(const Expansion& e) {
  Names seen;
  auto once = [&](const std::string& name, const char* what) {
    require(!name.empty(), "a {} has an empty name", what);
    require(seen.insert(name).second, "the step net's input \"{}\" is given twice, as a {} too", name, what);
    require(e.written.count(name) == 0, "the step net writes its own input \"{}\", a {}", name, what);
  };
  for (const SequenceLink& s : e.def.sequence()) once(s.inner(), "sequence");
  for (const StateLink& s : e.def.state()) once(s.input(), "state");
  once(e.def.timestep(), "timestep");
}

void check_names_outside(const Expansion& e) {
  require(e.def.sequence_size() == 1, "the short form takes one sequence, not {}", e.def.sequence_size());
  require(e.def.state_size() > 0, "the short form needs at least one state");
  const std::vector<std::string> inputs(e.op.input().begin(), e.op.input().end());
  auto is_input = [&](const std::string& name, const std::string& what) {
    require(contains(inputs, name), "{} \"{}\" is no input of the operator.{}", what, name, suggest(name, inputs));
  };
  is_input(e.def.sequence(0).outer(), "the sequence");
  std::map<std::string, int> views;
  for (const StateLink& s : e.def.state()) {
    is_input(s.initial(), fmt::format("the initial value of state \"{}\",", s.input()));
    if (s.has_all()) ++views[s.all()];
    if (s.has_last()) ++views[s.last()];
  }
  const std::vector<std::string> outputs(e.op.output().begin(), e.op.output().end());
  for (const auto& [name, count] : views) {
    require(contains(outputs, name), "\"{}\", a view of a state, is no output of the operator.{}", name,
            suggest(name, outputs));
    require(count == 1, "the output \"{}\" is the view of two states", name);
  }
  for (const std::string& name : outputs)
    require(views.count(name) > 0, "the output \"{}\" is the \"all\" or \"last\" of no state", name);
}

[[noreturn]] void refuse_input(const Expansion& e, int op, Error error) {
  add_op_context(error, bind_op(e.step.op(op), e.step.name(), op));
  throw Error(std::move(error));
}

// What the step net reads and nobody inside provides: parameters, lengths, an encoder's output.
void find_references(Expansion& e) {
  Names inside = {e.def.timestep(), e.def.sequence(0).inner()};
  for (const StateLink& s : e.def.state()) inside.insert(s.input());
  const std::vector<std::string> listed(e.step.external_input().begin(), e.step.external_input().end());
  Names so_far;
  for (int i = 0; i < e.step.op_size(); ++i) {
    for (const std::string& name : e.step.op(i).input()) {
      if (name.empty() || inside.count(name) > 0 || so_far.count(name) > 0 || contains(e.references, name)) continue;
      if (e.written.count(name) > 0)
        refuse_input(e, i,
                     Error(fmt::format("the step net reads \"{}\" before an operator writes it", name),
                           "make it a state if it is the value of the timestep before"));
      if (!listed.empty() && !contains(listed, name))
        refuse_input(e, i,
                     Error(fmt::format("the step net reads \"{}\", which no operator writes and which is no "
                                       "external_input.{}",
                                       name, suggest(name, {so_far.begin(), so_far.end()}))));
      e.references.push_back(name);
    }
    so_far.insert(e.step.op(i).output().begin(), e.step.op(i).output().end());
  }
}

OperatorDef copy_op(const std::string& from, const std::string& to) {
  OperatorDef op;
  op.set_type(op_with_role(Role::copy).type);
  op.set_name(kSpreadName);
  op.add_input(from);
  op.add_output(to);
  return op;
}

// Each state's output gets a step blob of its own that can be linked: one that no other link shows and that an operator
// writes. Anything else is written once more.
void link_states(Expansion& e) {
  Names linked = {e.def.sequence(0).inner(), e.def.timestep()};
  for (const StateLink& s : e.def.state()) linked.insert(s.input());
  const Names references(e.references.begin(), e.references.end());
  for (const StateLink& s : e.def.state()) {
    std::string output = s.output();
    const bool known = e.written.count(output) > 0 || linked.count(output) > 0 || references.count(output) > 0;
    if (!known) {
      std::vector<std::string> names(e.written.begin(), e.written.end());
      throw Error(fmt::format("no operator of the step net writes \"{}\", the output of state \"{}\".{}", output,
                              s.input(), suggest(output, names)));
    }
    if (e.written.count(output) == 0 || !linked.insert(output).second) {
      const std::string own = e.fresh(s.input() + "_next");
      *e.step.add_op() = copy_op(output, own);
      e.written.insert(own);
      e.spread.insert(own);
      linked.insert(own);
      output = own;
    }
    e.state_output.push_back(output);
  }
  for (int i = 0; i < e.def.state_size(); ++i) {
    e.links.push_back({e.def.state(i).input(), e.state_name(i), 0});
    e.links.push_back({e.state_output[i], e.state_name(i), 1});
  }
  e.links.push_back({e.def.sequence(0).inner(), e.def.sequence(0).outer(), 0});
}

void declare_step_net(Expansion& e) {
  e.step.clear_external_input();
  e.step.clear_external_output();
  for (const BuiltLink& link : e.links)
    if (e.written.count(link.internal) == 0) e.step.add_external_input(link.internal);
  for (const std::string& name : e.references) e.step.add_external_input(name);
  e.step.add_external_input(e.def.timestep());
  for (const std::string& name : e.state_output) e.step.add_external_output(name);
}

// The operators that make blobs which are not kept go in front of the backward step net once more.
void recompute(Expansion& e) {
  const Names wanted(e.def.recompute().begin(), e.def.recompute().end());
  for (const std::string& name : wanted)
    require(e.written.count(name) > 0, "\"recompute\" names \"{}\", which the step net does not write.{}", name,
            suggest(name, {e.written.begin(), e.written.end()}));
  for (const OperatorDef& op : e.step.op()) {
    if (std::none_of(op.output().begin(), op.output().end(), [&](const auto& o) { return wanted.count(o) > 0; }))
      continue;
    for (const std::string& output : op.output())
      require(wanted.count(output) > 0, "\"recompute\" has an output of {} but not \"{}\", which it writes too",
              op.type(), output);
    *e.backward.add_op() = op;
  }
}

GradientResult derive_backward(Expansion& e) {
  NetDef both = e.step;
  GradientRequest request;
  for (const std::string& output : e.state_output) {
    const std::string given = output + "_grad";
    e.taken.insert(given);
    request.targets.emplace_back(output, given);
  }
  for (const StateLink& s : e.def.state()) request.wanted.insert(s.input());
  request.wanted.insert(e.def.sequence(0).inner());
  request.wanted.insert(e.references.begin(), e.references.end());
  GradientResult result = add_gradient_operators(both, request);
  e.backward.set_name(e.scope + "/backward_step");
  recompute(e);
  for (int i = result.first_gradient_op; i < both.op_size(); ++i) {
    OperatorDef& op = *e.backward.add_op();
    op = both.op(i);
    // The gradient of a write that the builder added is the builder's too.
    const bool copies = op.type() == op_with_role(Role::copy).type;
    for (const std::string& name : e.spread)
      if (copies && op.input(0) == name + "_grad") op.set_name(kSpreadName);
    e.taken.insert(both.op(i).output().begin(), both.op(i).output().end());
  }
  return result;
}

const std::string& dense_gradient(const GradientResult& result, const std::string& blob) {
  static const std::string none;
  const auto it = result.gradients.find(blob);
  if (it == result.gradients.end()) return none;
  if (it->second.is_sparse())
    throw Error(fmt::format("the gradient of \"{}\" in the step net is sparse", blob),
                "give the operator that reads it the argument dense_gradient: 1");
  return it->second.dense;
}

// Gradients go to their destinations: each is linked once, and written once more for every other destination.
void link_gradients(Expansion& e, const GradientResult& result) {
  Names written;
  for (const OperatorDef& op : e.backward.op()) written.insert(op.output().begin(), op.output().end());
  Names linked;
  for (int i = 0; i < e.def.state_size(); ++i) {
    const std::string given = e.state_output[i] + "_grad";
    e.backward_links.push_back({given, e.state_name(i) + "_grad", 1});
    linked.insert(given);
  }
  auto lead = [&](const std::string& blob, const std::string& external) {
    std::string gradient = dense_gradient(result, blob);
    if (gradient.empty()) return;
    if (written.count(gradient) == 0 || !linked.insert(gradient).second) {
      const std::string own = e.fresh(blob + "_grad");
      *e.backward.add_op() = copy_op(gradient, own);
      gradient = own;
      linked.insert(own);
    }
    e.backward_links.push_back({gradient, external, 0});
  };
  for (int i = 0; i < e.def.state_size(); ++i) lead(e.def.state(i).input(), e.state_name(i) + "_grad");
  lead(e.def.sequence(0).inner(), e.def.sequence(0).outer() + "_grad");
  for (const std::string& reference : e.references) {
    std::string gradient = dense_gradient(result, reference);
    if (gradient.empty()) continue;
    if (written.count(gradient) == 0 || !linked.insert(gradient).second) {
      OperatorDef alias;
      alias.set_type(op_with_role(Role::alias).type);
      alias.add_input(gradient);
      gradient = e.fresh(reference + "_grad");
      alias.add_output(gradient);
      *e.backward.add_op() = alias;
    }
    e.params.emplace_back(reference, gradient);
  }
}

void declare_backward_net(Expansion& e) {
  Names given, written;
  auto add = [&](const std::string& name) {
    if (!name.empty() && given.insert(name).second) e.backward.add_external_input(name);
  };
  for (const OperatorDef& op : e.backward.op()) {
    for (const std::string& name : op.input())
      if (written.count(name) == 0) add(name);
    written.insert(op.output().begin(), op.output().end());
  }
  for (const std::string& output : e.state_output) add(output + "_grad");
}

// Puts the sequence first, then the initial states, the other given inputs, and the references that were not given.
void order_inputs(Expansion& e) {
  std::vector<std::string> inputs = {e.def.sequence(0).outer()};
  auto add = [&](const std::string& name) {
    if (!contains(inputs, name)) inputs.push_back(name);
  };
  for (const StateLink& s : e.def.state()) add(s.initial());
  for (const std::string& name : e.op.input()) add(name);
  for (const std::string& name : e.references) add(name);
  e.op.clear_input();
  for (const std::string& name : inputs) e.op.add_input(name);
}

int64_t index_of(const google::protobuf::RepeatedPtrField<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) - names.begin();
}

void add_link_args(OperatorDef& op, const std::string& prefix, const std::vector<BuiltLink>& links) {
  std::vector<std::string> internal, external;
  std::vector<int64_t> offset;
  for (const BuiltLink& link : links) {
    internal.push_back(link.internal);
    external.push_back(link.external);
    offset.push_back(link.offset);
  }
  *op.add_arg() = make_arg(prefix + "link_internal", internal);
  *op.add_arg() = make_arg(prefix + "link_external", external);
  *op.add_arg() = make_arg(prefix + "link_offset", offset);
}

void write_full_form(Expansion& e) {
  order_inputs(e);
  std::vector<std::string> states, sources, views, param_grads;
  std::vector<int64_t> initial, offsets, params, with_grads;
  for (int i = 0; i < e.def.state_size(); ++i) {
    states.push_back(e.state_name(i));
    initial.push_back(index_of(e.op.input(), e.def.state(i).initial()));
  }
  for (const std::string& output : e.op.output()) {  // views in the order of the outputs, so that indices agree
    for (int i = 0; i < e.def.state_size(); ++i) {
      const bool all = e.def.state(i).all() == output;
      if (!all && e.def.state(i).last() != output) continue;
      sources.push_back(e.state_name(i));
      offsets.push_back(all ? 1 : -1);
    }
    views.push_back(output);
    with_grads.push_back(static_cast<int64_t>(with_grads.size()));
  }
  for (const auto& [reference, gradient] : e.params) {
    params.push_back(index_of(e.op.input(), reference));
    param_grads.push_back(gradient);
  }
  *e.op.add_arg() = make_arg("step_net", e.step);
  *e.op.add_arg() = make_arg("timestep", e.def.timestep());
  *e.op.add_arg() = make_arg("recurrent_states", states);
  *e.op.add_arg() = make_arg("initial_recurrent_state_ids", initial);
  add_link_args(e.op, "", e.links);
  *e.op.add_arg() = make_arg("alias_src", sources);
  *e.op.add_arg() = make_arg("alias_dst", views);
  *e.op.add_arg() = make_arg("alias_offset", offsets);
  if (!e.def.forward_only()) {
    *e.op.add_arg() = make_arg("backward_step_net", e.backward);
    add_link_args(e.op, "backward_", e.backward_links);
    *e.op.add_arg() = make_arg("param", params);
    *e.op.add_arg() = make_arg("param_grads", param_grads);
    *e.op.add_arg() = make_arg("outputs_with_grads", with_grads);
    *e.op.add_arg() = make_arg("recompute_blobs_on_backward",
                               std::vector<std::string>(e.def.recompute().begin(), e.def.recompute().end()));
  }
  e.op.add_output(e.scope + "/step_workspaces");
  e.op.ClearExtension(recurrent);
}

std::string scope_of(const OperatorDef& op) {
  if (!op.name().empty()) return op.name();
  return op.output_size() > 0 ? op.output(0) + "_rnn" : "rnn";
}

void expand_op(OperatorDef& op) {
  Expansion e{.op = op, .def = op.GetExtension(recurrent), .scope = scope_of(op)};
  require(find_arg(op, "step_net") == nullptr, "the operator has both a short form and the argument \"step_net\"");
  e.step = e.def.step_net();
  if (e.step.name().empty()) e.step.set_name(e.scope + "/step");
  for (int i = 0; i < e.step.op_size(); ++i) {
    bind_op(e.step.op(i), e.step.name(), i);  // so that a mistake in an operator is said before anything else
    e.written.insert(e.step.op(i).output().begin(), e.step.op(i).output().end());
    e.taken.insert(e.step.op(i).input().begin(), e.step.op(i).input().end());
  }
  e.taken.insert(e.written.begin(), e.written.end());
  check_names_outside(e);
  check_inputs_are_distinct(e);
  find_references(e);
  link_states(e);
  declare_step_net(e);
  if (!e.def.forward_only()) {
    const GradientResult result = derive_backward(e);
    link_gradients(e, result);
    declare_backward_net(e);
  }
  write_full_form(e);
}

}  // namespace

bool has_short_form(const OperatorDef& op) { return op.HasExtension(recurrent); }

void expand_recurrent(NetDef& net) {
  Names scopes;  // states of two operators must not have the same names
  for (const OperatorDef& op : net.op())
    if (!has_short_form(op) && find_arg(op, "recurrent_states")) scopes.insert(scope_of(op));
  for (int i = 0; i < net.op_size(); ++i) {
    OperatorDef& op = *net.mutable_op(i);
    if (!has_short_form(op)) continue;
    try {
      if (!scopes.insert(scope_of(op)).second)
        throw Error(fmt::format("another operator has the name \"{}\" too", scope_of(op)), "give each its own name");
      expand_op(op);
    } catch (Error& e) {
      if (!e.has("op")) e.prefix(op.type());
      const std::string where = source_text(op);
      e.add("in", fmt::format("{}{}the short form of operator {} ({}) of net \"{}\"", where, where.empty() ? "" : ", ",
                              i, op.type(), net.name()));
      throw;
    }
  }
  if (net.HasExtension(model) && net.GetExtension(model).has_init())
    expand_recurrent(*net.MutableExtension(model)->mutable_init());
}

}  // namespace stepnet
