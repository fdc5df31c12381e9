#include "recurrent/network/rebuild.h"

#include <algorithm>

#include "recurrent/form/net_storage.h"
#include "recurrent/network/states.h"
#include "recurrent/step/passes.h"

namespace stepnet {
namespace {

constexpr const char* kUnit = "LSTMUnit";
constexpr int kGates = 2, kStates = 2;  // the input with the gates; the outputs that are states come first

// What a step net says of its states.
class StatesOfNet {
 public:
  explicit StatesOfNet(const RecurrentSpec& spec) : spec_(spec), storage_(spec.step_net) {
    const std::set<std::string> states = state_names(spec);
    for (const OperatorDef& op : spec.step_net.op())
      for (const std::string& name : op.output()) ++writers_[name];
    for (const Link& link : spec.links) {
      const bool is_state = states.count(link.external) > 0;
      linked_[link.internal] = is_state ? link.external : "";
      if (is_state && writers_.count(link.internal) > 0) written_[link.external].push_back(link.internal);
    }
  }

  // The state whose rows the step blob is; "" if it is none.
  std::string state_of(const std::string& blob) const {
    const auto link = linked_.find(blob);
    return link == linked_.end() ? "" : link->second;
  }

  // Whether the unit's inputs are there again before the backward pass: its gates are kept, and what else it reads are
  // rows of states that nobody writes but one operator, or blobs outside.
  bool can_run_again(const OperatorDef& op) const {
    if (op.type() != kUnit || op.input_size() <= kGates || spec_.activated.count(op.input(kGates)) == 0) return false;
    for (int i = 0; i < op.input_size(); ++i)
      if (i != kGates && !is_there_again(op.input(i))) return false;
    return true;
  }

  // The units' outputs that are rows of a state.
  std::set<std::string> made_again() const {
    std::set<std::string> blobs;
    for (const OperatorDef& op : spec_.step_net.op())
      for (int o = 0; o < std::min(op.output_size(), kStates); ++o)
        if (is_written_once(state_of(op.output(o))) && can_run_again(op)) blobs.insert(op.output(o));
    return blobs;
  }

 private:
  bool is_there_again(const std::string& name) const {
    const auto link = linked_.find(name);
    return link == linked_.end() ? writers_.count(name) == 0 : is_written_once(link->second);
  }
  bool is_written_once(const std::string& state) const {
    const auto blobs = written_.find(state);
    if (blobs == written_.end() || blobs->second.size() != 1) return false;
    const std::string& blob = blobs->second[0];
    return writers_.at(blob) == 1 && !storage_.has_other_names(blob);
  }

  const RecurrentSpec& spec_;
  NetStorage storage_;
  std::map<std::string, int> writers_;                       // by step blob: how many operators
  std::map<std::string, std::string> linked_;                // by step blob: the state; "" of what is none
  std::map<std::string, std::vector<std::string>> written_;  // by state: linked step blobs that operators write
};

// The units that make the states, from their gates' values; other outputs are left out.
NetDef rebuilding_net(const RecurrentSpec& spec, const std::set<std::string>& states) {
  const StatesOfNet of_net(spec);
  const std::set<std::string> made = of_net.made_again();
  NetDef net;
  net.set_name(spec.step_net.name() + "/states");
  for (const OperatorDef& op : spec.step_net.op()) {
    const auto is_wanted = [&](const std::string& blob) {
      return made.count(blob) > 0 && states.count(of_net.state_of(blob)) > 0;
    };
    if (std::ranges::none_of(op.output(), is_wanted)) continue;
    OperatorDef& unit = *net.add_op() = op;
    unit.mutable_output()->DeleteSubrange(kStates, unit.output_size() - kStates);
    for (std::string& output : *unit.mutable_output())
      if (!is_wanted(output)) output.clear();
    for (Argument& arg : *unit.mutable_arg())
      if (arg.name() == "activated_gates") arg.set_name("from_activated");
  }
  return net;
}

std::vector<Link> links_of(const NetDef& net, const std::vector<Link>& links) {
  std::set<std::string> named;
  for (const OperatorDef& op : net.op()) {
    named.insert(op.input().begin(), op.input().end());
    named.insert(op.output().begin(), op.output().end());
  }
  std::vector<Link> used;
  std::ranges::copy_if(links, std::back_inserter(used), [&](const Link& l) { return named.count(l.internal) > 0; });
  return used;
}

}  // namespace

std::set<std::string> rebuilt_states(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net) {
  if (!spec.rebuild_states || spec.activated.empty()) return {};
  const StatesOfNet of_net(spec);
  const std::set<std::string> hidden = states_in_segments(spec, def, net);
  std::set<std::string> states;
  for (const std::string& blob : of_net.made_again())
    if (const std::string state = of_net.state_of(blob); hidden.count(state) > 0) states.insert(state);
  return states;
}

int64_t rebuilt_segment(int64_t steps, int64_t unit) {
  const auto rows = [&](int64_t segment) { return segment + 1 + (steps + segment - 1) / segment; };
  int64_t best = unit;
  while (best < steps && rows(best + unit) <= rows(best)) best += unit;
  return 4 * rows(best) <= 3 * steps ? best : 0;
}

void prepare_rebuilder(RecurrentScratch& scratch, Workspace& workspace) {
  const RecurrentSpec& spec = scratch.forward_spec;
  const NetDef net = scratch.rebuilder ? NetDef() : rebuilding_net(spec, scratch.rebuilt);
  if (!scratch.rebuilder) scratch.rebuilder_links = links_of(net, spec.links);
  std::map<std::string, LinkTarget> targets = forward_links(scratch, workspace);
  std::erase_if(targets, [&](const auto& target) {
    return std::ranges::find(scratch.rebuilder_links, target.first, &Link::internal) == scratch.rebuilder_links.end();
  });
  if (scratch.rebuilder) {
    require(scratch.rebuilder->rebind_externals(),
            "what the step net reads has another shape or type than in the forward run, and states are made again");
    for (const auto& [name, target] : targets) scratch.rebuilder->rebind_link(name, target);
    for (const std::string& name : spec.activated) scratch.rebuilder->rebind_slab(name, scratch.slab(name));
    return;
  }
  StepSpec program;
  program.net = &net;
  program.random_name = spec.step_net.name();
  program.timestep = spec.timestep;
  program.steps = scratch.segments.total;
  program.batch = scratch.sequence[1];
  program.block = scratch.segments.steps;
  program.device = scratch.device;
  program.disabled_passes = spec.disabled_passes;
  program.descending = spec.reverse;
  program.links = std::move(targets);
  for (const std::string& name : spec.activated) program.slabs[name] = scratch.slab(name);
  program.workspace = &workspace;
  scratch.rebuilder = std::make_unique<StepProgram>(compile_step(std::move(program)));
}

}  // namespace stepnet
