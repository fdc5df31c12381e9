// A pass over a backward StepProgram: a gradient is written over the forward value that it is made from, where nobody
// else reads that: an LSTM's gates' gradients over the gates. All timesteps' gradients are there at the end of the run
// then, at no cost in memory, so that what only adds them up can wait until then, too.
#include <algorithm>

#include "recurrent/step/program.h"

namespace stepnet {

using Kind = StepSlot::Kind;

int StepProgram::uses_of(int slot) const {
  if (uses_) return uses_->uses[slot];
  int uses = 0;
  for (const auto& op : ops_)
    uses += static_cast<int>(std::ranges::count(op->in_slots, slot) + std::ranges::count(op->out_slots, slot));
  return uses;
}

// Whether the slab, which the operator reads, may have its output's values instead.
bool StepProgram::may_overwrite(const Op& op, int slab, int output) const {
  if (slab < 0 || output < 0 || slab == output || !op.kernel) return false;
  const StepSlot &old = *slots_[slab], &made = *slots_[output];
  if (old.kind != Kind::slab || spec_.visible.count(old.name) > 0 || uses_of(slab) != 1 || made.kind != Kind::scratch ||
      !made.typed)
    return false;
  const auto shows_it = [&](const auto& other) {
    return other.get() != &old && other->whole.shares_storage(old.whole);
  };
  if (std::ranges::any_of(slots_, shows_it)) return false;
  if (old.reshaped || made.reshaped || old.tensor.dtype() != made.tensor.dtype()) return false;
  if (!(old.tensor.shape() == made.tensor.shape()) || writers(output).size() != 1) return false;
  const auto is_made = [&](const StepProgramSpec::Sum& sum) { return slot_of(sum.name) == output; };
  return std::ranges::none_of(spec_.totals, is_made);
}

void StepProgram::replace_slot(int old, int by) {
  for (const auto& op : ops_) {
    std::ranges::replace(op->in_slots, old, by);
    std::ranges::replace(op->out_slots, old, by);
  }
  for (auto& [name, slot] : slots_by_name_)
    if (slot == old) slot = by;
  slots_[old]->unused = true;
}

void StepProgram::overwrite_slabs() {
  if (!spec_.backward || !runs_pass("overwrite")) return;
  for (const auto& op : ops_) {
    const OpSpec& spec = *op->op.spec;
    for (const InPlaceRule& rule : spec.in_place) {
      const auto in = static_cast<size_t>(spec.input_index(rule.in));
      const auto out = static_cast<size_t>(spec.output_index(rule.out));
      if (in >= op->in_slots.size() || out >= op->out_slots.size() || !rule.forbidden_if_wanted.empty()) continue;
      const int slab = op->in_slots[in], output = op->out_slots[out];
      if (!may_overwrite(*op, slab, output)) continue;
      replace_slot(output, slab);
      overwrites_ = true;
    }
  }
}

}  // namespace stepnet
