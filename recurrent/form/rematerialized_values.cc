#include <algorithm>
#include <map>

#include "core/net/dataflow.h"
#include "recurrent/form/backward_reads.h"
#include "recurrent/form/net_storage.h"
#include "recurrent/form/passes.h"
#include "recurrent/step/passes.h"
#include "stepnet/bound_op.h"

namespace stepnet {
namespace {

// What the backward step net reads, and which operators of the two nets make and read a blob.
class Rematerialization {
 public:
  Rematerialization(RecurrentSpec& spec, const std::set<int>& products)
      : spec_(spec),
        products_(products),
        forward_(spec.step_net),
        backward_(spec.backward_net),
        fixed_(blobs_with_places(spec)),
        kept_(backward_reads(spec).values) {
    for (const OperatorDef& op : spec.backward_net.op()) {
      const OpSpec& schema = op_spec(op.type());
      if (may_be_in_loop(schema)) continue;
      const std::vector<bool> values = element_reads(schema, op);
      for (int i = 0; i < op.input_size(); ++i)
        if (values[i]) read_apart_.insert(op.input(i));
    }
    for (const Link& link : spec.links) links_.emplace(link.internal, &link);
  }

  void run() {
    for (int i = 0; i < spec_.step_net.op_size(); ++i)
      if (may_run_again(i)) makers_[spec_.step_net.op(i).output(0)] = i;
    if (makers_.empty()) return;
    NetDef net = spec_.backward_net;
    net.clear_op();
    for (const OperatorDef& op : spec_.backward_net.op()) {
      for (const int maker : missing_makers(op)) *net.add_op() = spec_.step_net.op(maker);
      *net.add_op() = op;
    }
    net.clear_external_input();
    for (const std::string& name : read_from_outside(net)) net.add_external_input(name);
    spec_.backward_net = std::move(net);
    for (const auto& [name, maker] : makers_) spec_.rematerialized.insert(name);
  }

 private:
  static bool may_be_in_loop(const OpSpec& schema) { return schema.fused || schema.matrix_vector; }

  // Blobs that are somewhere outside, or that others than operators of the step nets see.
  static std::set<std::string> blobs_with_places(const RecurrentSpec& spec) {
    std::set<std::string> blobs = spec.recompute;
    blobs.insert(spec.activated.begin(), spec.activated.end());
    blobs.insert(spec.step_net.external_output().begin(), spec.step_net.external_output().end());
    for (const Link& link : spec.links) blobs.insert(link.internal);
    for (const Link& link : spec.backward_links) blobs.insert(link.internal);
    for (const ParamSpecGrad& p : spec.params) blobs.insert(p.grad);
    for (const StepOutput& o : spec.outputs) blobs.insert(o.internal);
    return blobs;
  }

  bool may_run_again(int index) const {
    const OperatorDef& op = spec_.step_net.op(index);
    const OpSpec* schema = find_op(op.type());
    const bool is_product = products_.count(index) > 0;
    if (!schema || !(schema->fused || is_product) || op.output_size() != 1 || op.has_device_option()) return false;
    const std::string& made = op.output(0);
    if (kept_.count(made) == 0 || read_apart_.count(made) > 0 || fixed_.count(made) > 0) return false;
    if (forward_.has_other_names(made) || backward_.has_other_names(made)) return false;
    if (forward_.writers(made) != 1 || backward_.writers(made) > 0) return false;
    if (!std::ranges::all_of(op.input(), [&](const std::string& name) { return is_there(name, index); })) return false;
    return is_product || is_cheap(*schema, bind_op(op, spec_.step_net.name(), index).args.get(), op.input_size());
  }

  // Whether the backward step net finds the value that the operator has read.
  bool is_there(const std::string& name, int reader) const {
    if (kept_.count(name) == 0 || backward_.writers(name) > 0) return false;
    const std::vector<int>& writing = forward_.writing(name);
    if (!writing.empty() && writing.back() >= reader) return false;
    const auto link = links_.find(name);
    return link == links_.end() || (writing.empty() && !is_written_later(*link->second));
  }

  // Whether this timestep or a later one writes rows of what the link shows, under whatever name.
  bool is_written_later(const Link& read) const {
    return std::ranges::any_of(spec_.links, [&](const Link& link) {
      if (link.external != read.external || forward_.writers(link.internal) == 0) return false;
      return spec_.reverse ? read.offset <= link.offset + link.window - 1
                           : read.offset + read.window - 1 >= link.offset;
    });
  }

  // In the order of the step net, those that no operator before this one has needed.
  std::set<int> missing_makers(const OperatorDef& reader) {
    std::set<int> missing;
    std::vector<const OperatorDef*> open = {&reader};
    while (!open.empty()) {
      const OperatorDef& op = *open.back();
      open.pop_back();
      for (const std::string& name : op.input()) {
        const auto maker = makers_.find(name);
        if (maker == makers_.end() || !made_.insert(name).second) continue;
        missing.insert(maker->second);
        open.push_back(&spec_.step_net.op(maker->second));
      }
    }
    return missing;
  }

  RecurrentSpec& spec_;
  const std::set<int>& products_;
  const NetStorage forward_, backward_;
  const std::set<std::string> fixed_;
  const std::set<std::string> kept_;  // what the backward step net reads before it writes it, by value
  std::set<std::string> read_apart_;  // by value, by operators of it that are in no loop of elementwise ones
  std::map<std::string, const Link*> links_;
  std::map<std::string, int> makers_;  // of blobs that are not kept: the operator of the step net
  std::set<std::string> made_;         // those of which the new net has made them so far
};

}  // namespace

void rematerialize(RecurrentSpec& spec, const std::set<int>& products) {
  if (spec.has_backward && spec.runs_pass("rematerialize") && spec.rename.empty())
    Rematerialization(spec, products).run();
}

}  // namespace stepnet
