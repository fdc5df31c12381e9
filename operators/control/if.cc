// If: runs then_net if the condition holds, else else_net, on the workspace that it stands in.
//
// Which net runs is known only then, so there is no derivative: a blob that one of them writes has the gradient of
// neither.

#include "operators/control/conditional_nets.h"

namespace stepnet::cpu_if {
namespace {

struct IfArgs {
  NetArg then_net, else_net;
  InnerNet then_runs, else_runs;
};

void check(const IfArgs& a, const OperatorDef&, const Workspace&) {
  check_conditional_nets("then_net", a.then_net, "else_net", a.else_net);
}

void run(const IfArgs& a, BlobCall& c) {
  forget_released_outputs(c);
  if (truth_of_input(c, 0)) {
    a.then_runs.run("then_net", a.then_net, c, c.run, c.run.iteration);
  } else if (a.else_net.present) {
    a.else_runs.run("else_net", a.else_net, c, c.run, c.run.iteration);
  }
}

constexpr const char* kExample = R"(
  op { type: 'If' input: 'C' input: 'X' output: 'Y'
       arg { name: 'then_net' n { op { type: 'Relu' input: 'X' output: 'Y' } } }
       arg { name: 'else_net' n { op { type: 'Negative' input: 'X' output: 'Y' } } } })";

constexpr const char* kInPlaceExample = R"(
  op { type: 'If' input: 'C' input: 'W' input: 'X' output: 'X'
       arg { name: 'then_net' n { op { type: 'Mul' input: 'X' input: 'W' output: 'X' } } } })";

REGISTER(if) {
  auto spec = op<IfArgs>("If");
  return declare_conditional(spec, "one bool")
      .doc(
          "Runs one of two nets on the workspace that it stands in: then_net if the condition is true, else else_net, "
          "or nothing if there is none. Its inputs should name all that the nets read, and its outputs all that they "
          "write and others read: only then does the net around keep the former and know of the latter. An output that "
          "the net which ran did not write keeps its value. It has no gradient and cannot stand in a step net.")
      .required_arg("then_net", &IfArgs::then_net, "what runs if the condition is true")
      .arg("else_net", &IfArgs::else_net, NetArg{}, "what runs if it is false; none: nothing")
      .blobs(run)
      .preflight(check)
      .example_net(kExample, {"C=bool,1:1", "X=2,3"})
      .example_net(kExample, {"C=bool,1:0", "X=2,0"})
      .example_net(kInPlaceExample, {"C=bool,1:0", "X=2", "W=2"})
      .no_gradient("which of its nets runs is known only when it runs");
}

}  // namespace
}  // namespace stepnet::cpu_if
