// Scans: where a stage's timesteps are one chain that makes each element of a state from that element alone, as linear
// recurrences and all others without products do, pieces of some elements go through a whole block of timesteps, on
// several threads, and a timestep costs little more than its arithmetic. Every result keeps its bits.
#include <algorithm>
#include <vector>

#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

// Whether the slot shows a timestep of known size wherever it is, or is always the same.
static bool has_places(const StepSlot& slot) {
  if (!slot.typed || slot.reshaped) return false;
  if (slot.kind == Kind::external) return true;
  const bool rows = slot.kind == Kind::link || slot.kind == Kind::slab || slot.kind == Kind::block;
  return rows && slot.row.size() == slot.tensor.size();
}

void plan_scans(StepIr& ir) {
  if (!std::ranges::all_of(ir.totals, [&](const StepTotal& t) { return ir.is_accumulator(t.slot); })) return;
  std::vector<StepOp*> alone(static_cast<size_t>(ir.stages));
  std::vector<int> operators(alone.size());
  for (const auto& op : ir.ops)
    if (op->phase == Phase::step) {
      alone[op->stage] = op.get();
      ++operators[op->stage];
    }
  const auto placed = [&](int slot) { return slot >= 0 && has_places(*ir.slots[slot]); };
  for (size_t s = 0; s < alone.size(); ++s)
    if (operators[s] == 1 && alone[s]->fused_steps && alone[s]->accumulate == 0)
      alone[s]->scans =
          std::ranges::all_of(alone[s]->in_slots, placed) && std::ranges::all_of(alone[s]->out_slots, placed);
}

}  // namespace stepnet
