// A pass over a backward StepProgram: a gradient is written over the forward value that it is made from, where nobody
// else reads that: an LSTM's gates' gradients over the gates. All timesteps' gradients are there at the end of the run
// then, at no cost in memory, so that what only adds them up can wait until then, too.
#include <algorithm>

#include "recurrent/step/program.h"

namespace stepnet {

using Kind = StepSlot::Kind;

// What does not change while slots are replaced.
struct StepProgram::Overwrites {
  std::map<const void*, int> shown;  // by storage: how many slots show it
  std::set<int> totals;
};

// Whether the slab, which the operator reads, may have its output's values instead.
bool StepProgram::may_overwrite(const Overwrites& known, const Op& op, int slab, int output) const {
  if (slab < 0 || output < 0 || slab == output || !op.kernel) return false;
  const StepSlot &old = *slots_[slab], &made = *slots_[output];
  if (old.kind != Kind::slab || spec_.visible.count(old.name) > 0 || uses_of(slab) != 1 || made.kind != Kind::scratch ||
      !made.typed)
    return false;
  if (const void* storage = old.whole.storage().get(); storage && known.shown.at(storage) > 1) return false;
  if (old.reshaped || made.reshaped || old.tensor.dtype() != made.tensor.dtype()) return false;
  return old.tensor.shape() == made.tensor.shape() && writers(output).size() == 1 && known.totals.count(output) == 0;
}

// Lets all who use the one slot use the other instead, which until now one operator reads.
void StepProgram::replace_slot(SlotUses& uses, int old, int by) {
  for (const size_t i : uses.users[old]) {
    std::ranges::replace(ops_[i]->in_slots, old, by);
    std::ranges::replace(ops_[i]->out_slots, old, by);
  }
  std::vector<size_t> users;
  std::ranges::set_union(uses.users[old], uses.users[by], std::back_inserter(users));
  uses.users[by] = std::move(users);
  uses.writers[by] = std::move(uses.writers[old]);
  uses.uses[by] += uses.uses[old];
  slots_[old]->unused = true;
}

void StepProgram::overwrite_slabs() {
  if (!spec_.backward || !runs_pass("overwrite")) return;
  KnownUses uses(*this);
  Overwrites known;
  for (const auto& slot : slots_)
    if (const void* storage = slot->whole.storage().get()) ++known.shown[storage];
  for (const StepProgramSpec::Sum& sum : spec_.totals) known.totals.insert(slot_of(sum.name));
  std::map<int, int> replaced;
  for (const auto& op : ops_) {
    const OpSpec& spec = *op->op.spec;
    for (const InPlaceRule& rule : spec.in_place) {
      const auto in = static_cast<size_t>(spec.input_index(rule.in));
      const auto out = static_cast<size_t>(spec.output_index(rule.out));
      if (in >= op->in_slots.size() || out >= op->out_slots.size() || !rule.forbidden_if_wanted.empty()) continue;
      const int slab = op->in_slots[in], output = op->out_slots[out];
      if (!may_overwrite(known, *op, slab, output)) continue;
      replace_slot(uses.slots(), output, slab);
      replaced[output] = slab;
      overwrites_ = true;
    }
  }
  for (auto& [name, slot] : slots_by_name_)
    if (const auto by = replaced.find(slot); by != replaced.end()) slot = by->second;
}

}  // namespace stepnet
