// Structure of plans: what can be refused before anything runs.
#include <set>

#include "core/nearest.h"
#include "stepnet/plan.h"

namespace stepnet {
namespace {

std::set<std::string> check_networks(const PlanDef& plan, std::vector<std::string>* warnings) {
  std::set<std::string> names;
  for (const NetDef& net : plan.network()) {
    require(!net.name().empty(), "plan \"{}\" has a network without a name", plan.name());
    require(names.insert(net.name()).second, "plan \"{}\" has two networks named \"{}\"", plan.name(), net.name());
    check_net(net, nullptr, warnings);
  }
  return names;
}

void check_name(const std::string& net, const std::set<std::string>& nets) {
  require(nets.count(net) > 0, "the plan has no network \"{}\".{}", net, Nearest{net, nets});
}

// One step's own fields; throws Error.
void check_fields(const ExecutionStep& step, const std::set<std::string>& nets) {
  require(step.substep_size() == 0 || step.network_size() == 0, "the step has substeps and networks; it may have one");
  for (const std::string& net : step.network()) check_name(net, nets);
  require(step.num_iter() >= 0, "num_iter must be at least 0, but is {}", step.num_iter());
  require(!step.has_num_iter() || step.should_stop_blob().empty(),
          "num_iter and should_stop_blob are both set; a step takes one of them");
  require(!step.has_only_once() || !step.should_stop_blob().empty(), "only_once needs should_stop_blob");
  require(!step.has_run_every_ms() || step.run_every_ms() > 0, "run_every_ms must be at least 1, but is {}",
          step.run_every_ms());
  require(step.num_concurrent_instances() >= 0, "num_concurrent_instances must be at least 0, but is {}",
          step.num_concurrent_instances());
  if (step.report_net().empty()) return;
  check_name(step.report_net(), nets);
  require(step.report_interval() > 0, "report_net needs report_interval, in seconds");
}

void check_step(const ExecutionStep& step, const std::string& path, const std::set<std::string>& nets) {
  try {
    check_fields(step, nets);
  } catch (Error& e) {
    e.add("in", fmt::format("step \"{}\"", path));
    throw;
  }
  for (const ExecutionStep& substep : step.substep()) check_step(substep, path + "/" + substep.name(), nets);
}

}  // namespace

void check_plan(const PlanDef& plan, std::vector<std::string>* warnings) {
  const std::set<std::string> nets = check_networks(plan, warnings);
  for (const ExecutionStep& step : plan.execution_step()) check_step(step, step.name(), nets);
  if (plan.execution_step_size() == 0 && warnings)
    warnings->push_back(fmt::format("plan \"{}\" has no execution step: nothing is run", plan.name()));
}

}  // namespace stepnet
