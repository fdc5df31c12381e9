// What a short form names must be there, once; and the order in which its parts are expanded. See
// recurrent/form/expansion.h.
#include "recurrent/form/short_form.h"

#include <algorithm>
#include <map>

#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "core/net/expansions.h"
#include "core/operator/extensions.h"
#include "core/operator/nets_inside.h"
#include "core/passes/defined_operators.h"
#include "core/passes/inner_gradients.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/layer_ops.h"
#include "recurrent/form/passes.h"
#include "stepnet/bound_op.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

[[noreturn]] void refuse_operator(const Expansion& e, int op, Error error) {
  add_op_context(error, bind_op(e.step.op(op), e.step.name(), op));
  throw Error(std::move(error));
}

// An input may have another name in the step net at the time when an operator writes that.
void check_is_only_read(const Expansion& e, const Dataflow& flow, const std::string& name, const char* what) {
  const int blob = flow.find(name);
  if (blob < 0 || flow.value(flow.last(blob)).writer < 0) return;
  const std::string& output = flow.name(flow.value(flow.last(blob)).blob);
  refuse_operator(e, flow.last_writer(blob),
                  Error(fmt::format("it writes another name of the step net's input \"{}\", a {}", name, what),
                        output == name ? "write to another blob"
                                       : fmt::format("write to another blob, or let Copy make \"{}\"", output)));
}

void check_inputs(const Expansion& e) {
  const BoundNet step(e.step, {.fixed_storages = true});
  Names seen;
  auto once = [&](const std::string& name, const char* what) {
    require(!name.empty(), "a {} has an empty name", what);
    require(seen.insert(name).second, "the step net's input \"{}\" is given twice, as a {} too", name, what);
    require(e.written.count(name) == 0, "the step net writes its own input \"{}\", a {}", name, what);
    check_is_only_read(e, step.flow, name, what);
  };
  for (const SequenceLink& s : e.def.sequence()) once(s.inner(), "sequence");
  for (const StateLink& s : e.def.state()) once(s.input(), "state");
  once(e.def.timestep(), "timestep");
  // The next timestep would read what this one has left there, though no state says so.
  for (const int blob : step.flow.from_outside())
    if (const std::string& name = step.flow.name(blob); seen.count(name) == 0 && e.written.count(name) == 0)
      check_is_only_read(e, step.flow, name, "blob from outside");
}

void check_inputs_outside(const Expansion& e) {
  require(e.def.sequence_size() > 0, "the short form needs at least one sequence");
  require(e.def.state_size() > 0, "the short form needs at least one state");
  const Names inputs(e.op.input().begin(), e.op.input().end());
  auto is_input = [&](const std::string& name, const std::string& what) {
    require(inputs.count(name) > 0, "{} \"{}\" is no input of the operator.{}", what, name, Nearest{name, inputs});
  };
  Names sequences;
  for (const SequenceLink& s : e.def.sequence()) {
    is_input(s.outer(), "the sequence");
    if (!sequences.insert(s.outer()).second)
      throw Error(fmt::format("the sequence \"{}\" is given twice", s.outer()),
                  "let the step net read one input where it needs it");
  }
  for (const StateLink& s : e.def.state())
    if (s.has_initial()) is_input(s.initial(), fmt::format("the initial value of state \"{}\",", s.input()));
  if (!e.def.has_lengths()) return;
  is_input(e.def.lengths(), "the sequence lengths");
  require(e.written.count(e.def.lengths()) == 0, "the step net writes \"{}\", the sequence lengths", e.def.lengths());
}

void check_sizes(const Expansion& e) {
  for (const StateLink& s : e.def.state()) {
    require(!s.has_initial() || s.size_size() == 0, "the state \"{}\" has both \"initial\" and \"size\"", s.input());
    if (!s.has_initial() && s.size_size() == 0)
      throw Error(fmt::format("the state \"{}\" starts at zero, but nothing says what it is like", s.input()),
                  "give its dimensions after the batch's, as in \"size: 128\", or an initial value");
    for (const int64_t size : s.size())
      require(size >= 0, "the state \"{}\" has the size {}, which is negative", s.input(), size);
    require(s.size_size() <= 6, "the state \"{}\" has {} sizes, more than the 6 that fit a tensor beside T and B",
            s.input(), s.size_size());
  }
}

void check_outputs_outside(const Expansion& e) {
  std::map<std::string, int> shown;
  for (const StateLink& s : e.def.state()) {
    if (s.has_all()) ++shown[s.all()];
    if (s.has_last()) ++shown[s.last()];
  }
  const Names outputs(e.op.output().begin(), e.op.output().end());
  for (const auto& [name, count] : shown) {
    require(outputs.count(name) > 0, "\"{}\", a view of a state, is no output of the operator.{}", name,
            Nearest{name, outputs});
    require(count == 1, "the output \"{}\" is the view of two states", name);
  }
  for (const OutputLink& o : e.def.output()) {
    require(outputs.count(o.outer()) > 0, "\"{}\", which is to show \"{}\", is no output of the operator.{}", o.outer(),
            o.inner(), Nearest{o.outer(), outputs});
    require(++shown[o.outer()] == 1, "the output \"{}\" is given twice", o.outer());
  }
  for (const std::string& name : e.op.output())
    require(shown.count(name) > 0, "the output \"{}\" is the \"all\" or \"last\" of no state", name);
}

// A step blob that is to leave the timestep: any that the step net writes or reads.
void check_step_blobs(const Expansion& e) {
  Names known = e.written;
  for (const SequenceLink& s : e.def.sequence()) known.insert(s.inner());
  for (const StateLink& s : e.def.state()) known.insert(s.input());
  known.insert(e.def.timestep());
  for (const OperatorDef& op : e.step.op()) known.insert(op.input().begin(), op.input().end());
  known.erase("");
  auto check = [&](const std::string& name, const std::string& what) {
    require(known.count(name) > 0, "no operator of the step net writes \"{}\", {}.{}", name, what,
            Nearest{name, e.written});
  };
  for (const StateLink& s : e.def.state()) check(s.output(), fmt::format("the output of state \"{}\"", s.input()));
  for (const OutputLink& o : e.def.output()) check(o.inner(), fmt::format("which \"{}\" is to show", o.outer()));
}

}  // namespace

void check_names(const Expansion& e) {
  check_inputs_outside(e);
  check_sizes(e);
  check_outputs_outside(e);
  check_inputs(e);
  check_step_blobs(e);
}

void find_references(Expansion& e) {
  Names inside = {e.def.timestep()};
  for (const SequenceLink& s : e.def.sequence()) inside.insert(s.inner());
  for (const StateLink& s : e.def.state()) inside.insert(s.input());
  const Names listed(e.step.external_input().begin(), e.step.external_input().end());
  Names so_far, found;
  for (int i = 0; i < e.step.op_size(); ++i) {
    for (const std::string& name : e.step.op(i).input()) {
      if (name.empty() || inside.count(name) > 0 || so_far.count(name) > 0 || found.count(name) > 0) continue;
      if (e.written.count(name) > 0)
        refuse_operator(e, i,
                        Error(fmt::format("the step net reads \"{}\" before an operator writes it", name),
                              "make it a state if it is the value of the timestep before"));
      if (!listed.empty() && listed.count(name) == 0)
        refuse_operator(e, i,
                        Error(fmt::format("the step net reads \"{}\", which no operator writes and which is no "
                                          "external_input.{}",
                                          name, suggest(name, {so_far.begin(), so_far.end()}))));
      e.references.push_back(name);
      found.insert(name);
    }
    so_far.insert(e.step.op(i).output().begin(), e.step.op(i).output().end());
  }
}

namespace {

std::string scope_of(const OperatorDef& op) {
  if (!op.name().empty()) return op.name();
  return op.output_size() > 0 ? op.output(0) + "_rnn" : "rnn";
}

// A network in a step net stands several times in what the outer one becomes, and all that is in it with it. Where that
// is so much more than was written, the text was made to be. The sizes are bytes of messages.
void check_size(size_t written, const OperatorDef& expanded) {
  constexpr size_t kAlwaysAllowed = size_t{1} << 20, kTimesAllowed = 32;
  const size_t size = expanded.ByteSizeLong(), allowed = std::max(kAlwaysAllowed, kTimesAllowed * written);
  if (size > allowed)
    throw Error(fmt::format("its short form has {} bytes, and what it stands for {}, more than the {} that are allowed "
                            "where networks hold networks",
                            written, size, allowed),
                "nest fewer networks, or let the outer one say \"forward_only: true\" if nothing is trained");
}

// A net whose operators have no short forms and stand for no others. `prefix` tells the blobs of nested networks apart
// from those of the surrounding net; with `only_forward` no network in it has a backward step net.
void expand_net(NetDef& net, const std::string& prefix, bool only_forward);

// Returns what has to run before the operator. A nested network has no place for that.
std::vector<OperatorDef> expand_op(OperatorDef& op, const std::string& scope, bool nested, bool only_forward) {
  Expansion e{.op = op, .def = op.GetExtension(recurrent), .scope = scope, .nested = nested};
  const size_t written = e.def.ByteSizeLong();
  if (only_forward) e.def.set_forward_only(true);
  require(find_arg(op, "step_net") == nullptr, "the operator has both a short form and the argument \"step_net\"");
  e.step = e.def.step_net();
  if (e.step.name().empty()) e.step.set_name(e.scope + "/step");
  expand_net(e.step, e.scope + "/", e.def.forward_only());
  const auto is_network = [](const OperatorDef& inner) { return find_arg(inner, "recurrent_states") != nullptr; };
  const bool holds_networks = std::ranges::any_of(e.step.op(), is_network);
  for (int i = 0; i < e.step.op_size(); ++i) {
    bind_op(e.step.op(i), e.step.name(), i);  // so that a mistake in an operator is said before anything else
    e.written.insert(e.step.op(i).output().begin(), e.step.op(i).output().end());
    e.taken.insert(e.step.op(i).input().begin(), e.step.op(i).input().end());
  }
  e.taken.insert(e.written.begin(), e.written.end());
  for (const SequenceLink& s : e.def.sequence()) e.taken.insert(s.inner());
  for (const StateLink& s : e.def.state()) e.taken.insert(s.input());
  for (const std::string& name : {e.def.timestep(), e.def.lengths()}) e.taken.insert(name);
  check_names(e);
  mask_by_lengths(e);
  run_passes(e);
  find_references(e);
  link_states(e);
  link_outputs(e);
  declare_step_net(e);
  build_backward(e);
  e.step = forward_only(std::move(e.step));  // what networks in it keep, those that the backward step runs again keep
  write_full_form(e);
  if (holds_networks) check_size(written, op);
  return e.before;
}

// Puts operators before those of the net that they are for, by place.
void insert(NetDef& net, std::map<int, std::vector<OperatorDef>> before) {
  if (before.empty()) return;
  google::protobuf::RepeatedPtrField<OperatorDef> all;
  for (int i = 0; i < net.op_size(); ++i) {
    if (const auto ops = before.find(i); ops != before.end())
      for (OperatorDef& op : ops->second) all.Add()->Swap(&op);
    all.Add()->Swap(net.mutable_op(i));
  }
  net.mutable_op()->Swap(&all);
}

void expand_net(NetDef& net, const std::string& prefix, bool only_forward) {
  expand_cell_operators(net);
  only_forward = only_forward && !has_inner_gradients(net);  // which may be those of a network in it
  Names scopes;                                              // states of two operators must not have the same names
  for (const OperatorDef& op : net.op())
    if (!has_short_form(op) && find_arg(op, "recurrent_states")) scopes.insert(prefix + scope_of(op));
  std::map<int, std::vector<OperatorDef>> before;
  for (int i = 0; i < net.op_size(); ++i) {
    OperatorDef& op = *net.mutable_op(i);
    if (!has_short_form(op)) continue;
    try {
      if (!scopes.insert(prefix + scope_of(op)).second)
        throw Error(fmt::format("another operator has the name \"{}\" too", scope_of(op)), "give each its own name");
      std::vector<OperatorDef> ops = expand_op(op, prefix + scope_of(op), !prefix.empty(), only_forward);
      if (!ops.empty()) before[i] = std::move(ops);
    } catch (Error& e) {
      if (!e.has("op")) e.prefix(op.type());
      const std::string where = source_text(op);
      e.add("in", fmt::format("{}{}the short form of operator {} ({}) of net \"{}\"", where, where.empty() ? "" : ", ",
                              i, op.type(), net.name()));
      throw;
    }
  }
  insert(net, std::move(before));
  expand_inner_gradients(net, !prefix.empty());
}

REGISTER(short_form) {
  return entry([] { add_expansion(expand_recurrent); });
}

}  // namespace

void expand_recurrent(NetDef& net) {
  take_all_extensions(net);
  expand_defined_operators(net);
  expand_net(net, "", false);
  if (net.HasExtension(model) && net.GetExtension(model).has_init())
    expand_recurrent(*net.MutableExtension(model)->mutable_init());
}

}  // namespace stepnet
