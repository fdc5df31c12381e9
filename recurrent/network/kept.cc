#include "recurrent/network/kept.h"

#include "recurrent/form/passes.h"

namespace stepnet {
NetDef needed_operators(const NetDef& backward_net, std::set<std::string> needed) {
  NetDef net = backward_net;
  net.clear_op();
  std::vector<OperatorDef> kept;
  for (int i = backward_net.op_size() - 1; i >= 0; --i) {
    OperatorDef op = backward_net.op(i);
    const OpSpec& schema = op_spec(op.type());
    bool any = schema.side_effect;
    for (int o = 0; o < op.output_size(); ++o) {
      if (needed.count(op.output(o)) > 0) {
        any = true;
      } else if (schema.output_spec(o) && schema.output_spec(o)->uses) {
        op.set_output(o, "");
      }
    }
    if (!any) continue;
    for (const std::string& name : op.input()) needed.insert(name);
    kept.push_back(std::move(op));
  }
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) *net.add_op() = *it;
  return net;
}

void adapt_step_nets(RecurrentSpec& spec, const RecurrentScratch& scratch) {
  if (scratch.is_fetched) return;
  activate_gates(spec);
  if (scratch.device.kind == DeviceKind::cpu) rematerialize(spec, scratch.outer_products);
}

Tensor RecurrentScratch::slab(const std::string& name) const {
  if (forward) return forward->slab(name);
  const auto it = forward_slabs.find(name);
  return it == forward_slabs.end() ? Tensor() : it->second;
}

std::map<std::string, Tensor> RecurrentScratch::slabs() const {
  std::map<std::string, Tensor> slabs;
  for (const auto& [name, type] : types) {
    const auto view = segments.views.find(name);
    const Tensor slab = segments.used && view != segments.views.end()
                            ? segments.work.slabs.at(view->second.slab).reshaped(view->second.shape)
                            : this->slab(name);
    if (slab.defined()) slabs[name] = slab;
  }
  return slabs;
}

void RecurrentScratch::drop_programs() {
  backward.reset();
  rebuilder.reset();
  if (!forward) return;
  if (segments.used) forward->let_go_of_segment();
  if (segments.used && segments.plan.reruns && !segments.rebuilds) return;  // the backward pass needs the program
  for (const auto& [name, type] : types)
    if (const Tensor slab = forward->slab(name); slab.storage()) forward_slabs[name] = slab;
  forward.reset();
  is_settled = true;
}

std::vector<Tensor*> RecurrentScratch::settle() {
  drop_programs();
  std::vector<Tensor*> kept;
  for (auto& [name, slab] : forward_slabs) kept.push_back(&slab);
  segments.add_tensors(kept);
  return kept;
}

}  // namespace stepnet
