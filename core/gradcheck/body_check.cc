#include "core/gradcheck/body_check.h"

#include <algorithm>

#include "core/gradcheck/examples.h"
#include "core/gradcheck/runs.h"
#include "core/operator/program_gradients.h"
#include "stepnet/net.h"
#include "stepnet/op_spec.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

constexpr double kRounding = 1e-12;  // of an output's largest element, or of 1 if that is more

bool has_body(const OperatorDef& op) { return static_cast<bool>(op_spec(op.type()).composed); }

// The net with these operators in place of its own.
NetDef net_of(const GradientSubject& subject, const std::vector<OperatorDef>& ops) {
  NetDef net = subject.net;
  net.clear_op();
  net.clear_external_input();
  net.clear_external_output();
  for (const OperatorDef& op : ops) *net.add_op() = op;
  return net;
}

// The body as operators; `outputs` gets the names of what it computes, "" for what it does not.
std::vector<OperatorDef> body_of(const OperatorDef& op, std::vector<std::string>& outputs) {
  const OpSpec& spec = op_spec(op.type());
  const GradientProgram body = record_body(spec, op, parse_args(spec, op).get());
  const auto name = [&](int slot) {
    if (slot < 0) return std::string();
    const GradientProgram::Slot& s = body.slots[slot];
    return s.kind == GradientProgram::SlotKind::input ? op.input(s.index) : fmt::format("body/{}", slot);
  };
  std::vector<OperatorDef> ops;
  for (const GradientProgram::Step& step : body.steps) ops.push_back(call_of(step, name));
  for (const Gradient& result : body.results) outputs.push_back(name(result.dense.slot));
  return ops;
}

// Copies of the operator's inputs.
void copy_inputs(const OperatorDef& op, const Workspace& from, Workspace& to) {
  for (const std::string& name : op.input())
    if (const Blob* blob = name.empty() ? nullptr : from.find(name); blob && blob->is_tensor() && !blob->empty())
      to.tensor(name) = blob->tensor().clone();
}

void compare(const OperatorDef& op, const Workspace& workspace, const Workspace& composed,
             const std::vector<std::string>& outputs, GradientReport& report) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].empty()) continue;
    const std::string& name = op.output(static_cast<int>(o));
    Tensor found = copied_to(composed.fetch(outputs[o]), {});
    const Tensor expected = copied_to(workspace.fetch(name), {});
    // Only where no derivative follows from it may it have another shape.
    if (found.size() == expected.size() && !derives_by_body(op_spec(op.type())))
      found.set_view(expected.shape(), found.offset());
    const std::string differs = difference(found, expected, kRounding);
    if (!differs.empty())
      report.broken.push_back(
          fmt::format("output {} of {} is not what it is composed of, at {}", o, op.type(), differs));
  }
}

}  // namespace

void check_bodies(const GradientSubject& subject, uint64_t seed, GradientReport& report) {
  if (std::ranges::none_of(subject.net.op(), has_body)) return;
  Workspace workspace;
  workspace.confine(subject.files);
  for (const auto& [name, value] : subject.feeds) workspace.tensor(name) = copied_to(value, subject.device);
  for (const OperatorDef& op : subject.net.op()) {
    Workspace composed;
    std::vector<std::string> outputs;
    if (has_body(op)) {
      copy_inputs(op, workspace, composed);
      const std::vector<OperatorDef> body = body_of(op, outputs);
      if (!body.empty()) run_once(net_of(subject, body), composed, seed);
    }
    run_once(net_of(subject, {op}), workspace, seed);
    compare(op, workspace, composed, outputs, report);
  }
}

}  // namespace stepnet
