// A pass over a backward StepIr: a gradient is written over the forward value that it is made from, where nobody
// else reads that: an LSTM's gates' gradients over the gates. All timesteps' gradients are there at the end of the run
// then, at no cost in memory, so that what only adds them up can wait until then, too.
#include <algorithm>

#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"

namespace stepnet {

using Kind = StepSlot::Kind;

namespace {

// What does not change while slots are replaced.
struct Overwrites {
  std::map<const void*, int> shown;  // by storage: how many slots show it
  std::set<int> totals;
};

// Whether the slab, which the operator reads, may have its output's values instead.
bool may_overwrite(const StepIr& ir, const Overwrites& known, const StepOp& op, int slab, int output) {
  if (slab < 0 || output < 0 || slab == output || !op.kernel) return false;
  const StepSlot &old = *ir.slots[slab], &made = *ir.slots[output];
  if (old.kind != Kind::slab || ir.spec.visible.count(old.name) > 0 || ir.uses_of(slab) != 1 ||
      made.kind != Kind::scratch || !made.typed)
    return false;
  if (const void* storage = old.whole.storage().get(); storage && known.shown.at(storage) > 1) return false;
  if (old.reshaped || made.reshaped || old.tensor.dtype() != made.tensor.dtype()) return false;
  return old.tensor.shape() == made.tensor.shape() && ir.writers(output).size() == 1 && known.totals.count(output) == 0;
}

// Lets all who use the one slot use the other instead, which until now one operator reads.
void replace_slot(StepIr& ir, SlotUses& uses, int old, int by) {
  for (const size_t i : uses.users[old]) {
    std::ranges::replace(ir.ops[i]->in_slots, old, by);
    std::ranges::replace(ir.ops[i]->out_slots, old, by);
  }
  std::vector<size_t> users;
  std::ranges::set_union(uses.users[old], uses.users[by], std::back_inserter(users));
  uses.users[by] = std::move(users);
  uses.writers[by] = std::move(uses.writers[old]);
  uses.uses[by] += uses.uses[old];
  ir.slots[old]->unused = true;
}

}  // namespace

void overwrite_slabs(StepIr& ir) {
  KnownUses uses(ir);
  Overwrites known;
  for (const auto& slot : ir.slots)
    if (const void* storage = slot->whole.storage().get()) ++known.shown[storage];
  for (const StepSpec::Sum& sum : ir.spec.totals) known.totals.insert(ir.slot_of(sum.name));
  std::map<int, int> replaced;
  for (const auto& op : ir.ops) {
    const OpSpec& spec = *op->op.spec;
    for (const InPlaceRule& rule : spec.in_place) {
      const auto in = static_cast<size_t>(spec.input_index(rule.in));
      const auto out = static_cast<size_t>(spec.output_index(rule.out));
      if (in >= op->in_slots.size() || out >= op->out_slots.size() || !rule.forbidden_if_wanted.empty()) continue;
      const int slab = op->in_slots[in], output = op->out_slots[out];
      if (!may_overwrite(ir, known, *op, slab, output)) continue;
      replace_slot(ir, uses.slots(), output, slab);
      replaced[output] = slab;
      ir.overwrites = true;
    }
  }
  for (auto& [name, slot] : ir.slots_by_name)
    if (const auto by = replaced.find(slot); by != replaced.end()) slot = by->second;
}

}  // namespace stepnet
