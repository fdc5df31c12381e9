#include "recurrent/form/activated_gates.h"

#include <algorithm>

#include "core/operator/op_spec.h"
#include "recurrent/form/net_storage.h"

namespace stepnet {
namespace {

// The indices of the net's operators that read the blob, or write it.
std::vector<int> users(const NetDef& net, const std::string& name, bool writers) {
  std::vector<int> found;
  for (int i = 0; i < net.op_size(); ++i)
    if (std::ranges::count(writers ? net.op(i).output() : net.op(i).input(), name) > 0) found.push_back(i);
  return found;
}

// Whether the gradient operator belongs to this one: it has the same arguments, and its first inputs are the same.
bool belongs(const OperatorDef& gradient, const OperatorDef& op) {
  if (gradient.input_size() < op.input_size() || gradient.arg_size() != op.arg_size()) return false;
  for (int i = 0; i < op.input_size(); ++i)
    if (gradient.input(i) != op.input(i)) return false;
  return std::ranges::all_of(op.arg(), [&](const Argument& arg) {
    const Argument* other = find_arg(gradient, arg.name());
    return other && other->SerializeAsString() == arg.SerializeAsString();
  });
}

// The backward step net's operator that alone reads what the operator would overwrite, or -1.
int only_reader(const NetDef& step_net, int index, const NetDef& backward_net, const SavedInstead& rule,
                const std::string& name) {
  const std::vector<int> made = users(step_net, name, true);
  if (made.empty() || made.back() >= index || users(step_net, name, false) != std::vector<int>{index}) return -1;
  const std::vector<int> readers = users(backward_net, name, false);
  if (readers.size() != 1 || !users(backward_net, name, true).empty()) return -1;
  const OperatorDef& gradient = backward_net.op(readers[0]);
  return gradient.type() == rule.gradient && belongs(gradient, step_net.op(index)) ? readers[0] : -1;
}

// `fixed`: blobs that must keep the values that the step net gives them. Returns the blobs that are overwritten. A blob
// with other names is left alone: whoever reads one of these would see the activated gates.
std::set<std::string> overwrite(NetDef& step_net, NetDef& backward_net, const std::set<std::string>& fixed) {
  std::set<std::string> overwritten;
  const NetStorage forward(step_net), backward(backward_net);
  for (int i = 0; i < step_net.op_size(); ++i) {
    OperatorDef& op = *step_net.mutable_op(i);
    const OpSpec* schema = find_op(op.type());
    if (!schema || !schema->saves_instead) continue;
    const SavedInstead& rule = *schema->saves_instead;
    const int input = schema->input_index(rule.input);
    const auto outputs = static_cast<int>(schema->outputs.size());
    if (input >= op.input_size() || op.output_size() >= outputs) continue;
    const std::string name = op.input(input);
    if (fixed.count(name) > 0 || std::ranges::count(op.input(), name) > 1) continue;
    if (forward.has_other_names(name) || backward.has_other_names(name)) continue;
    const int reader = only_reader(step_net, i, backward_net, rule, name);
    if (reader < 0) continue;
    while (op.output_size() < outputs - 1) op.add_output("");
    op.add_output(name);
    *op.add_arg() = make_arg(rule.arg, 1);
    *backward_net.mutable_op(reader)->add_arg() = make_arg(rule.arg, 1);
    overwritten.insert(name);
  }
  return overwritten;
}

}  // namespace

void activate_gates(RecurrentSpec& spec) {
  if (!spec.has_backward || !spec.runs_pass("activate") || !spec.rename.empty()) return;
  std::set<std::string> fixed = spec.recompute;
  fixed.insert(spec.step_net.external_output().begin(), spec.step_net.external_output().end());
  for (const Link& link : spec.links) fixed.insert(link.internal);
  for (const Link& link : spec.backward_links) fixed.insert(link.internal);
  for (const ParamSpecGrad& p : spec.params) fixed.insert(p.grad);
  for (const StepOutput& o : spec.outputs) fixed.insert(o.internal);
  spec.activated = overwrite(spec.step_net, spec.backward_net, fixed);
}

}  // namespace stepnet
