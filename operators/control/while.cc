// While: runs loop_net as long as the condition holds, on the workspace that it stands in. With cond_net, that net runs
// before each look at the condition.
//
// How often it runs is known only then, so there is no derivative. Random operators draw anew in each round, and in
// each run of the net around.

#include <algorithm>

#include "core/operator/nets_inside.h"
#include "operators/control/conditional_nets.h"
#include "stepnet/random.h"

namespace stepnet::cpu_while {
namespace {

struct WhileArgs {
  NetArg loop_net, cond_net;
  InnerNet loop_runs, cond_runs;
};

bool writes(NetDef net, const std::string& name) {
  bool found = false;
  for_each_net(net, [&](const NetDef& inner) {
    for (const OperatorDef& op : inner.op()) found = found || std::ranges::count(op.output(), name) > 0;
  });
  return found;
}

void check(const WhileArgs& a, const OperatorDef& def, const Workspace&) {
  check_conditional_nets("loop_net", a.loop_net, "cond_net", a.cond_net);
  require(writes(a.loop_net.net, def.input(0)) || writes(a.cond_net.net, def.input(0)),
          "no operator of loop_net or cond_net writes the condition \"{}\", so the loop could not end", def.input(0));
}

void run(const WhileArgs& a, BlobCall& c) {
  forget_released_outputs(c);
  RunContext context = c.run;
  context.seed = random_key(c.run.seed, c.net.name(), c.def.input(0), c.run.iteration, c.run.timestep);
  // Rounds are counted on from run to run, as Print's every_n expects; nobody makes 2^32 of them.
  const uint64_t before = static_cast<uint64_t>(c.run.iteration) << 32;
  for (uint64_t round = 0;; ++round) {
    const auto iteration = static_cast<int64_t>(before + round);
    if (a.cond_net.present) a.cond_runs.run("cond_net", a.cond_net, c, context, iteration);
    if (!truth_of_input(c, 0)) return;
    a.loop_runs.run("loop_net", a.loop_net, c, context, iteration);
  }
}

constexpr const char* kExample = R"(
  op { type: 'While' input: 'C' input: 'X' output: 'C' output: 'X'
       arg { name: 'loop_net' n { op { type: 'Sqr' input: 'X' output: 'X' }
                                  op { type: 'Not' input: 'C' output: 'C' } } } })";

constexpr const char* kConditionExample = R"(
  op { type: 'While' input: 'C' input: 'X' input: 'done' output: 'C' output: 'X' output: 'done'
       arg { name: 'cond_net' n { op { type: 'Not' input: 'done' output: 'C' } } }
       arg { name: 'loop_net' n { op { type: 'Sqr' input: 'X' output: 'X' }
                                  op { type: 'Or' input: 'C' input: 'done' output: 'done' } } } })";

REGISTER(while) {
  auto spec = op<WhileArgs>("While");
  return declare_conditional(spec, "one bool, which one of the nets writes")
      .doc(
          "Runs loop_net on the workspace that it stands in as long as the condition is true. With cond_net, that net "
          "runs first each time and writes the condition. Nothing bounds the number of rounds, and a first interrupt "
          "ends no loop: it waits for the net around. Its inputs should name all that the nets read, and its outputs "
          "all that they write and others read: only then does the net around keep the former and know of the latter. "
          "It has no gradient and cannot stand in a step net.")
      .required_arg("loop_net", &WhileArgs::loop_net, "what runs in each round")
      .arg("cond_net", &WhileArgs::cond_net, NetArg{}, "what runs before each look at the condition; none: nothing")
      .blobs(run)
      .preflight(check)
      .example_net(kExample, {"C=bool,1:1", "X=2,3"})
      .example_net(kConditionExample, {"C=bool,1:1", "X=1,0", "done=bool,1:0"})
      .no_gradient("how often its nets run is known only when it runs");
}

}  // namespace
}  // namespace stepnet::cpu_while
