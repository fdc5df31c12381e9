#include "recurrent/form/passes.h"

#include <algorithm>

#include "core/net/dataflow.h"
#include "recurrent/step/passes.h"
#include "stepnet/arguments.h"

namespace stepnet {
namespace {

void find_written(Expansion& e) { e.written = written_names(e.step); }

void merge_step_products(Expansion& e) {
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

bool has_place_before(const Expansion& e) { return !e.nested; }

constexpr NetPass kPasses[] = {
    {"attention", nullptr, nullptr, "the loop over a matrix state that only adds up runs by chunks of timesteps"},
    {"merge", has_place_before, merge_step_products, "products with one input become one"},
    {"split_concat", nullptr, split_step_concats, "a product with a Concat becomes a sum of products with its parts"},
    {"activate", nullptr, nullptr, "units keep the activated gates for their gradient, in the place of the gates"},
    {"rematerialize", nullptr, nullptr, "what little arithmetic makes of kept values is made again, and not kept"},
};

bool is_disabled(const OperatorDef& op, const std::string& pass) {
  const Argument* passes = find_arg(op, "disabled_passes");
  return passes && contains(passes->strings(), pass);
}

}  // namespace

void run_passes(Expansion& e) {
  for (const NetPass& pass : net_passes())
    if (pass.run && (!pass.applies || pass.applies(e)) && !is_disabled(e.op, std::string(pass.name))) pass.run(e);
}

std::span<const NetPass> net_passes() { return kPasses; }

const std::vector<std::string>& pass_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NetPass& pass : net_passes()) all.emplace_back(pass.name);
    for (const StepPass& pass : step_passes())
      if (pass.may_be_disabled) all.emplace_back(pass.name);
    std::ranges::sort(all);
    return all;
  }();
  return names;
}

}  // namespace stepnet
