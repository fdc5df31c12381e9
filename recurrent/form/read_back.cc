#include "recurrent/form/read_back.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/net/dataflow.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/spec.h"
#include "recurrent/step/counters.h"
#include "stepnet/bound_op.h"

namespace stepnet {
namespace {

// Arguments that say how the network runs, not what it is.
bool is_kept(const Argument& arg) {
  static const std::set<std::string> kept = {"disabled_passes", "segment_steps", "segment_room", "memory_budget_bytes",
                                             "rebuild_states"};
  return kept.count(arg.name()) > 0;
}

class ReadBack {
 public:
  ReadBack(const OperatorDef& op, const RecurrentSpec& spec) : op_(op), spec_(spec), step_(spec.step_net) {
    for (const StateSpec& state : spec.states) states_[state.name].set_initial("");
  }

  RecurrentDef run() {
    RecurrentDef def;
    take_written_again_back();
    for (const OperatorDef& op : step_.op()) written_.insert(op.output().begin(), op.output().end());
    for (const Link& link : spec_.links) read_link(link, def);
    for (const StateView& view : spec_.views) read_view(view, def);
    for (const StateSpec& state : spec_.states) finish_state(state, *def.add_state());
    for (const StepOutput& output : spec_.outputs) add_output(source_of(output.internal), output.external, def);
    def.set_timestep(spec_.timestep);
    def.set_reverse(spec_.reverse);
    for (const std::string& name : spec_.recompute) def.add_recompute(name);
    NetDef& step = *def.mutable_step_net();
    step = step_;
    step.clear_op();
    step.clear_external_input();
    step.clear_external_output();
    for (const auto& [from, to] : read_twice_) *step.add_op() = copy_op(from, to);
    step.mutable_op()->MergeFrom(step_.op());
    return def;
  }

 private:
  // Copies that the builder has added so that a blob can be linked a second time.
  void take_written_again_back() {
    google::protobuf::RepeatedPtrField<OperatorDef> ops;
    for (const OperatorDef& op : step_.op()) {
      if (op.name() == kSpreadName && op_spec(op.type()).role == Role::copy)
        sources_[op.output(0)] = op.input(0);
      else
        *ops.Add() = op;
    }
    step_.mutable_op()->Swap(&ops);
  }

  std::string source_of(const std::string& blob) const {
    const auto found = sources_.find(blob);
    return found == sources_.end() ? blob : found->second;
  }

  [[noreturn]] static void refuse(const Link& link, const std::string& why) {
    throw Error(fmt::format("\"{}\" is linked to \"{}\" from row {} on, {}, which no short form can say", link.internal,
                            link.external, link.offset, why));
  }

  void read_link(const Link& link, RecurrentDef& def) {
    if (link.window != 1) refuse(link, fmt::format("{} rows at a time", link.window));
    const auto state = states_.find(link.external);
    const bool is_written = written_.count(link.internal) + sources_.count(link.internal) > 0;
    if (state == states_.end()) {
      if (link.offset != 0) refuse(link, "not the first");
      const auto first =
          std::ranges::find_if(def.sequence(), [&](const SequenceLink& s) { return s.outer() == link.external; });
      if (first != def.sequence().end()) {
        read_twice_.emplace_back(first->inner(), link.internal);
        return;
      }
      SequenceLink& sequence = *def.add_sequence();
      sequence.set_outer(link.external);
      sequence.set_inner(link.internal);
      return;
    }
    const int64_t before = spec_.reverse ? 1 : 0, after = 1 - before;
    if (link.offset != (is_written ? after : before)) refuse(link, is_written ? "and written" : "and read");
    if (is_written && state->second.has_output()) refuse(link, "which another blob is, too");
    if (is_written)
      state->second.set_output(source_of(link.internal));
    else if (state->second.has_input())
      read_twice_.emplace_back(state->second.input(), link.internal);
    else
      state->second.set_input(link.internal);
  }

  void read_view(const StateView& view, RecurrentDef& def) {
    StateLink& state = states_.at(view.state);
    if (view.offset == -1 && !state.has_last())
      state.set_last(view.output);
    else if (view.offset == 1 && !state.has_all())
      state.set_all(view.output);
    else if (view.offset == 1)
      add_output(state.output(), view.output, def);
    else
      throw Error(fmt::format("the output \"{}\" shows \"{}\" from row {} on{}, which no short form can say",
                              view.output, view.state, view.offset, view.offset == -1 ? ", as another does" : ""));
  }

  void finish_state(const StateSpec& spec, StateLink& state) {
    state = states_.at(spec.name);
    if (!state.has_input()) {
      std::string name = state.output() + "_unread";
      while (written_.count(name) > 0) name += "_";
      state.set_input(name);
    }
    state.clear_initial();
    if (spec.initial >= 0)
      state.set_initial(op_.input(spec.initial));
    else
      for (const int64_t size : spec.size) state.add_size(size);
  }

  static void add_output(const std::string& inner, const std::string& outer, RecurrentDef& def) {
    OutputLink& output = *def.add_output();
    output.set_inner(inner);
    output.set_outer(outer);
  }

  const OperatorDef& op_;
  const RecurrentSpec& spec_;
  NetDef step_;
  std::set<std::string> written_;
  std::map<std::string, std::string> sources_;  // of what is written again
  std::map<std::string, StateLink> states_;
  std::vector<std::pair<std::string, std::string>> read_twice_;  // the first name, another of the same rows
};

}  // namespace

OperatorDef short_form_of(const OperatorDef& op, bool nested) {
  const BoundOp bound = bind_op(op, "", 0);
  const RecurrentSpec spec = parse_recurrent(*static_cast<const RecurrentArgs*>(bound.args.get()), op, op.input_size());
  const auto shown = static_cast<int>(spec.views.size() + spec.outputs.size());
  require(op.output_size() <= shown + 1, "it has {} outputs, but {} are views of states or written by the step net",
          op.output_size(), shown);
  OperatorDef result = op;
  result.clear_arg();
  for (const Argument& arg : op.arg())
    if (is_kept(arg)) *result.add_arg() = arg;
  if (op.output_size() > shown) result.mutable_output()->RemoveLast();
  RecurrentDef& def = *result.MutableExtension(recurrent);
  def = ReadBack(op, spec).run();
  if (!spec.has_backward && !nested) def.set_forward_only(true);
  return result;
}

}  // namespace stepnet
