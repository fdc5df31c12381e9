#include "recurrent/form/passes.h"

#include <algorithm>
#include <map>

#include "recurrent/form/net_storage.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

// The operators that read each blob of a net, and those that write it, by index and in order.
struct BlobUsers {
  explicit BlobUsers(const NetDef& net) {
    const auto add = [](std::vector<int>& to, int op) {
      if (to.empty() || to.back() != op) to.push_back(op);
    };
    for (int i = 0; i < net.op_size(); ++i) {
      for (const std::string& name : net.op(i).input()) add(readers[name], i);
      for (const std::string& name : net.op(i).output()) add(writers[name], i);
    }
  }
  static const std::vector<int>& of(const std::map<std::string, std::vector<int>>& users, const std::string& name) {
    static const std::vector<int> none;
    const auto found = users.find(name);
    return found == users.end() ? none : found->second;
  }
  std::map<std::string, std::vector<int>> readers, writers;
};

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

// A recurrent net while gates are activated; who uses its blobs does not change for those that are still asked about.
struct Activation {
  NetDef &step_net, &backward_net;
  const BlobUsers forward, backward;
};

// The backward step net's operator that alone reads what the operator would overwrite, or -1.
int only_reader(const Activation& nets, int index, const SavedInstead& rule, const std::string& name) {
  const std::vector<int>& made = BlobUsers::of(nets.forward.writers, name);
  if (made.empty() || made.back() >= index || BlobUsers::of(nets.forward.readers, name) != std::vector<int>{index})
    return -1;
  const std::vector<int>& readers = BlobUsers::of(nets.backward.readers, name);
  if (readers.size() != 1 || !BlobUsers::of(nets.backward.writers, name).empty()) return -1;
  const OperatorDef& gradient = nets.backward_net.op(readers[0]);
  return gradient.type() == rule.gradient && belongs(gradient, nets.step_net.op(index)) ? readers[0] : -1;
}

// `fixed`: blobs that must keep the values that the step net gives them. Returns the blobs that are overwritten. A blob
// with other names is left alone: whoever reads one of these would see the activated gates.
std::set<std::string> overwrite(NetDef& step_net, NetDef& backward_net, const std::set<std::string>& fixed) {
  std::set<std::string> overwritten;
  const NetStorage forward(step_net), backward(backward_net);
  const Activation nets{step_net, backward_net, BlobUsers(step_net), BlobUsers(backward_net)};
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
    const int reader = only_reader(nets, i, rule, name);
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
