// The forward links of a short form: each state, sequence and output gets a step blob of its own. See
// recurrent/form/expansion.h.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "recurrent/form/expansion.h"
#include "recurrent/step/counters.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

// The step's inputs, which links show.
Names linked_inputs(const Expansion& e) {
  Names linked = {e.def.timestep()};
  for (const SequenceLink& s : e.def.sequence()) linked.insert(s.inner());
  for (const StateLink& s : e.def.state()) linked.insert(s.input());
  return linked;
}

// Writes a blob once more, to one that can be linked.
std::string write_again(Expansion& e, const std::string& blob, const std::string& base) {
  const std::string own = e.fresh(base);
  *e.step.add_op() = spread_op(blob, own);
  e.written.insert(own);
  e.spread.insert(own);
  return own;
}

// Who writes the blobs of the step net, and which are other names of others: found once for all outputs.
class StepNames {
 public:
  explicit StepNames(const NetDef& step) {
    for (int i = 0; i < step.op_size(); ++i) {
      const OperatorDef& op = step.op(i);
      for (const std::string& name : std::set<std::string>(op.output().begin(), op.output().end())) ++writers_[name];
      for (const AliasRule& alias : op_spec(op.type()).aliases) {
        const int in = op_spec(op.type()).input_index(alias.in), out = op_spec(op.type()).output_index(alias.out);
        if (in < op.input_size() && out < op.output_size()) aliases_[op.output(out)].emplace_back(i, op.input(in));
      }
    }
  }

  int writers(const std::string& blob) const {
    const auto found = writers_.find(blob);
    return found == writers_.end() ? 0 : found->second;
  }
  // The blob that `blob` is another name of, by the last operators that say so.
  std::string source_of(std::string blob) const {
    for (int before = std::numeric_limits<int>::max();;) {
      const auto names = aliases_.find(blob);
      if (names == aliases_.end()) return blob;
      const auto behind = std::ranges::lower_bound(names->second, before, {}, &std::pair<int, std::string>::first);
      if (behind == names->second.begin()) return blob;
      std::tie(before, blob) = *std::prev(behind);
    }
  }

 private:
  std::map<std::string, int> writers_;
  std::map<std::string, std::vector<std::pair<int, std::string>>> aliases_;  // operators, in order, and their inputs
};

}  // namespace

OperatorDef copy_op(const std::string& from, const std::string& to) {
  OperatorDef op;
  op.set_type(op_with_role(Role::copy).type);
  op.add_input(from);
  op.add_output(to);
  return op;
}

OperatorDef spread_op(const std::string& from, const std::string& to) {
  OperatorDef op = copy_op(from, to);
  op.set_name(kSpreadName);
  return op;
}

// Each state's output gets a step blob of its own that can be linked: one that no other link shows and that an operator
// writes. Anything else is written once more.
void link_states(Expansion& e) {
  Names linked = linked_inputs(e);
  for (int i = 0; i < e.def.state_size(); ++i) {
    const StateLink& s = e.def.state(i);
    std::string output = s.output();
    if (e.written.count(output) == 0 || !linked.insert(output).second) {
      output = write_again(e, output, s.input() + "_next");
      linked.insert(output);
    }
    e.state_output.push_back(output);
    if (s.has_all()) e.views.push_back({e.state_name(i), s.all(), 1});
    if (s.has_last()) e.views.push_back({e.state_name(i), s.last(), -1});
  }
  for (int i = 0; i < e.def.state_size(); ++i) {
    e.links.push_back({e.def.state(i).input(), e.state_name(i), e.row_before()});
    e.links.push_back({e.state_output[i], e.state_name(i), e.row_after()});
  }
  for (const SequenceLink& s : e.def.sequence()) e.links.push_back({s.inner(), s.outer(), 0});
}

// An output that is a state's is a view of it. Any other is written by the step in its place, which only a blob can be
// that one operator writes and nobody else gives.
void link_outputs(Expansion& e) {
  const StepNames names(e.step);
  Names given = linked_inputs(e);
  std::map<std::string, int> states;  // by output
  for (const std::string& output : e.state_output) {
    given.insert(names.source_of(output));
    states.emplace(output, static_cast<int>(states.size()));
  }
  for (const OutputLink& o : e.def.output()) {
    if (const auto state = states.find(o.inner()); state != states.end()) {
      e.views.push_back({e.state_name(state->second), o.outer(), 1});
      continue;
    }
    const bool free = names.writers(o.inner()) == 1 && given.insert(names.source_of(o.inner())).second;
    e.outputs.push_back({free ? o.inner() : write_again(e, o.inner(), o.inner() + "_out"), o.outer()});
  }
}

void declare_step_net(Expansion& e) {
  e.step.clear_external_input();
  e.step.clear_external_output();
  for (const BuiltLink& link : e.links)
    if (e.written.count(link.internal) == 0) e.step.add_external_input(link.internal);
  for (const std::string& name : e.references) e.step.add_external_input(name);
  e.step.add_external_input(e.def.timestep());
  for (const std::string& name : e.state_output) e.step.add_external_output(name);
  for (const BuiltOutput& output : e.outputs) e.step.add_external_output(output.internal);
}

// Samples of different lengths. In the timesteps beyond a sample's length its rows of sequences and outputs are zero,
// and its states keep what they were: one operator for each sequence, state and output of the step net.
namespace {

OperatorDef mask_op(const Expansion& e, const std::string& from, const std::string& to, const std::string& beyond) {
  OperatorDef op;
  op.set_type(op_with_role(Role::mask_by_length).type);
  for (const std::string& name : {from, e.def.lengths(), e.def.timestep()}) op.add_input(name);
  if (!beyond.empty()) op.add_input(beyond);
  op.add_output(to);
  return op;
}

std::string masked(Expansion& e, const std::string& blob, const std::string& beyond) {
  const std::string name = e.fresh(blob + "_masked");
  *e.step.add_op() = mask_op(e, blob, name, beyond);
  e.written.insert(name);
  return name;
}

}  // namespace

void mask_by_lengths(Expansion& e) {
  if (!e.def.has_lengths()) return;
  NetDef step = e.step;
  step.clear_op();
  for (SequenceLink& s : *e.def.mutable_sequence()) {
    const std::string row = e.fresh(s.inner() + "_row");
    *step.add_op() = mask_op(e, row, s.inner(), "");
    e.written.insert(s.inner());
    if (step.external_input_size() > 0) step.add_external_input(row);
    s.set_inner(row);
  }
  if (step.external_input_size() > 0) step.add_external_input(e.def.lengths());
  step.mutable_op()->MergeFrom(e.step.op());
  e.step = std::move(step);
  for (OutputLink& o : *e.def.mutable_output()) o.set_inner(masked(e, o.inner(), ""));
  for (StateLink& s : *e.def.mutable_state()) s.set_output(masked(e, s.output(), s.input()));
}

}  // namespace stepnet
