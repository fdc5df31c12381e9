// A network that has run, and how many of its operators run when.
#include "tests/recurrent/programs.h"

#include <ostream>

#include "recurrent/form/short_form.h"
#include "stepnet/gradients.h"

namespace stepnet::testing {

const RecurrentScratch& run_programs(Workspace& workspace, const Cell& cell, const Feeds& feeds,
                                     const std::string& target, const std::set<std::string>& wanted) {
  NetDef net = expanded_net(cell, feeds);
  add_gradient_operators(net, {.targets = {{target, ""}}, .wanted = wanted, .stop = {}});
  for (const auto& [name, value] : feeds) workspace.tensor(name) = value.clone();
  RunContext run;
  run_net_once(net, workspace, run);
  return workspace.at("rnn/step_workspaces").get<RecurrentScratch>();
}

void PrintTo(const OperatorCounts& c, std::ostream* out) {
  *out << fmt::format("{{{}, {}, {}, {}}}", c.forward_blocks, c.forward_steps, c.backward_blocks, c.backward_steps);
}

OperatorCounts operator_counts(const RecurrentScratch& scratch) {
  return {scratch.forward->block_operators(), scratch.forward->step_operators(), scratch.backward->block_operators(),
          scratch.backward->step_operators()};
}

}  // namespace stepnet::testing
