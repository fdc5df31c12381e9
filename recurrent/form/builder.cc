#include "recurrent/form/builder.h"

#include <algorithm>

#include "core/net/dataflow.h"
#include "core/net/expansions.h"
#include "core/operator/bound_op.h"
#include "core/operator/nets_inside.h"
#include "recurrent/form/cell_operators.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/merge_products.h"
#include "recurrent/form/split_concats.h"

namespace stepnet {
namespace {

std::string scope_of(const OperatorDef& op) {
  if (!op.name().empty()) return op.name();
  return op.output_size() > 0 ? op.output(0) + "_rnn" : "rnn";
}

bool is_disabled(const OperatorDef& op, const std::string& pass) {
  const Argument* passes = find_arg(op, "disabled_passes");
  return passes && contains(passes->strings(), pass);
}

void find_written(Expansion& e) { e.written = written_names(e.step); }

void merge_step_products(Expansion& e) {
  if (is_disabled(e.op, "merge")) return;
  MergeUse use;
  use.inside.insert(e.def.timestep());
  for (const SequenceLink& s : e.def.sequence()) use.inside.insert(s.inner());
  for (const StateLink& s : e.def.state()) use.inside.insert(s.input());
  use.kept.insert(e.def.recompute().begin(), e.def.recompute().end());
  use.fresh = [&e](const std::string& base) { return e.fresh(base); };
  use.fresh_outside = [&e](const std::string& base) { return e.fresh(e.scope + "/" + base); };
  MergedProducts merged = merge_products(e.step, use);
  e.step = std::move(merged.step);
  e.before = std::move(merged.joins);
  find_written(e);
}

// What the step net shows keeps its name, and where it is computed again, so are its terms.
void split_step_concats(Expansion& e) {
  if (is_disabled(e.op, "split_concat")) return;
  ConcatUse use;
  for (const StateLink& s : e.def.state()) {
    use.states.insert(s.input());
    use.shown.insert(s.output());
  }
  for (const OutputLink& o : e.def.output()) use.shown.insert(o.inner());
  use.shown.insert(e.def.recompute().begin(), e.def.recompute().end());
  use.shown.insert(e.step.external_output().begin(), e.step.external_output().end());
  use.term_name = [&e](const std::string& blob) {
    const std::string name = e.fresh(blob + "_part");
    if (contains(e.def.recompute(), blob)) e.def.add_recompute(name);
    return name;
  };
  e.step = split_concats(e.step, use);
  find_written(e);
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

// A net whose operators have no short forms. `prefix` tells the blobs of nested networks apart from those of the
// surrounding net; with `only_forward` no network in it has a backward step net.
void expand_net(NetDef& net, const std::string& prefix, bool only_forward);

// Returns what has to run before the operator. A nested network has no place for that.
std::vector<OperatorDef> expand_op(OperatorDef& op, const std::string& scope, bool nested, bool only_forward) {
  Expansion e{.op = op, .def = op.GetExtension(recurrent), .scope = scope};
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
  if (!nested) merge_step_products(e);
  find_references(e);
  split_step_concats(e);
  link_states(e);
  link_outputs(e);
  declare_step_net(e);
  build_backward(e);
  e.step = forward_only(std::move(e.step));  // what networks in it keep, those that the backward step runs again keep
  write_full_form(e);
  if (holds_networks) check_size(written, op);
  return e.before;
}

// Puts the operators before operator i; returns its new place.
int insert_before(NetDef& net, int i, const std::vector<OperatorDef>& ops) {
  for (const OperatorDef& op : ops) {
    *net.add_op() = op;
    for (int at = net.op_size() - 1; at > i; --at) net.mutable_op()->SwapElements(at, at - 1);
    ++i;
  }
  return i;
}

void expand_net(NetDef& net, const std::string& prefix, bool only_forward) {
  expand_cell_operators(net);
  Names scopes;  // states of two operators must not have the same names
  for (const OperatorDef& op : net.op())
    if (!has_short_form(op) && find_arg(op, "recurrent_states")) scopes.insert(prefix + scope_of(op));
  for (int i = 0; i < net.op_size(); ++i) {
    OperatorDef& op = *net.mutable_op(i);
    if (!has_short_form(op)) continue;
    try {
      if (!scopes.insert(prefix + scope_of(op)).second)
        throw Error(fmt::format("another operator has the name \"{}\" too", scope_of(op)), "give each its own name");
      i = insert_before(net, i, expand_op(op, prefix + scope_of(op), !prefix.empty(), only_forward));
    } catch (Error& e) {
      if (!e.has("op")) e.prefix(op.type());
      const std::string where = source_text(op);
      e.add("in", fmt::format("{}{}the short form of operator {} ({}) of net \"{}\"", where, where.empty() ? "" : ", ",
                              i, op.type(), net.name()));
      throw;
    }
  }
}

}  // namespace

namespace {

[[maybe_unused]] const bool kRegistered = register_expansion(expand_recurrent);

}  // namespace

void expand_recurrent(NetDef& net) {
  expand_net(net, "", false);
  if (net.HasExtension(model) && net.GetExtension(model).has_init())
    expand_recurrent(*net.MutableExtension(model)->mutable_init());
}

}  // namespace stepnet
