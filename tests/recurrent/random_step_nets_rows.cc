// States of several rows, which only the full form can say: a state that is another one's value of the timestep before
// becomes a row more of that one.
#include <algorithm>

#include "tests/recurrent/random_step_nets_run.h"

namespace stepnet::testing {
namespace {

using Strings = google::protobuf::RepeatedPtrField<std::string>;

// The argument of that name, empty if there was none.
Argument& argument(OperatorDef& op, const std::string& name) {
  for (Argument& arg : *op.mutable_arg())
    if (arg.name() == name) return arg;
  Argument& made = *op.add_arg();
  made.set_name(name);
  return made;
}

int place_of(const Strings& names, const std::string& name) {
  return static_cast<int>(std::ranges::find(names, name) - names.begin());
}

// Has an initial value of its own, one row of every sample.
bool starts_alone(const StepNet& net, const CellState& state) {
  const auto starts = [&](const CellState& s) { return s.initial == state.initial; };
  if (state.initial.empty() || std::ranges::count_if(net.cell.states, starts) != 1) return false;
  return std::ranges::any_of(
      net.feeds, [&](const StepFeed& feed) { return feed.name == state.initial && feed.sizes.size() == 3; });
}

std::string rows_of(const CellState& state) { return fmt::format("rnn/{}_states", state.input); }

// The step net's copy of the later state is gone, with its link.
void drop_copy(OperatorDef& op, const std::string& state) {
  Argument &internal = argument(op, "link_internal"), &external = argument(op, "link_external"),
           &offset = argument(op, "link_offset");
  NetDef& step = *argument(op, "step_net").mutable_n();
  for (int i = external.strings_size() - 1; i >= 0; --i) {
    if (external.strings(i) != state || offset.ints(i) != 1) continue;
    const std::string name = internal.strings(i);
    for (int j = step.op_size() - 1; j >= 0; --j)
      if (step.op(j).output(0) == name) step.mutable_op()->DeleteSubrange(j, 1);
    if (const int at = place_of(step.external_output(), name); at < step.external_output_size())
      step.mutable_external_output()->DeleteSubrange(at, 1);
    internal.mutable_strings()->DeleteSubrange(i, 1);
    external.mutable_strings()->DeleteSubrange(i, 1);
    offset.mutable_ints()->erase(offset.ints().begin() + i);
  }
}

}  // namespace

std::optional<DelayedState> delayed_state(const StepNet& net) {
  if (net.cell.reverse || !net.cell.lengths.empty()) return std::nullopt;
  for (const CellState& later : net.cell.states)
    for (const CellState& first : net.cell.states)
      if (&later != &first && later.output == first.input && later.all.empty() && later.last.empty() &&
          first.output != first.input && starts_alone(net, later) && starts_alone(net, first) &&
          net.widths.at(later.input) == net.widths.at(first.input))
        return DelayedState{first, later};
  return std::nullopt;
}

void merge_rows(NetDef& net, const DelayedState& states) {
  OperatorDef& op = *net.mutable_op(net.op_size() - 1);
  const std::string first = rows_of(states.first), later = rows_of(states.later);
  drop_copy(op, later);
  Argument &external = argument(op, "link_external"), &offset = argument(op, "link_offset");
  for (int i = 0; i < external.strings_size(); ++i) {
    if (external.strings(i) == first) offset.set_ints(i, offset.ints(i) + 1);
    if (external.strings(i) == later) external.set_strings(i, first);
  }
  Argument &source = argument(op, "alias_src"), &rows = argument(op, "alias_offset");
  for (int i = 0; i < source.strings_size(); ++i)
    if (source.strings(i) == first && rows.ints(i) == 1) rows.set_ints(i, 2);
  Argument& names = argument(op, "recurrent_states");
  const int gone = place_of(names.strings(), later);
  names.mutable_strings()->DeleteSubrange(gone, 1);
  for (Argument& arg : *op.mutable_arg())
    if ((arg.name() == "initial_recurrent_state_ids" || arg.name() == "zero_state_ranks") && arg.ints_size() > gone)
      arg.mutable_ints()->erase(arg.ints().begin() + gone);
  op.set_input(place_of(op.input(), states.first.initial), "rows");
  const OperatorDef network = op;
  op = make_op("Concat", {states.later.initial, states.first.initial}, {"rows", "rows_info"}, {make_arg("axis", 0)});
  *net.add_op() = network;
}

}  // namespace stepnet::testing
