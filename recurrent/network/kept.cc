#include "recurrent/network/kept.h"

#include "recurrent/form/passes.h"

namespace stepnet {

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
