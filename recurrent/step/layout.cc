// A pass over a StepIr: slots that are never alive at the same time have the same bytes.
//
// Scratch lives within a timestep of one stage, from the operator that writes it to the last that reads it. Lanes are
// at different operators, and perhaps stages, so each has its samples' part of every slot in an arena of its own;
// without lanes, all stages share one. A slot of blocks lives from its first operator to its last one within a turn:
// the operators of all stages that run in front of blocks, the steps of all stages at once, the operators behind
// blocks. This holds if stages run in turn, too: what is not alive at once in a turn is then not alive at once in a
// block either. What crosses stages is always alive, because each of them may be at another block.
#include <algorithm>

#include "core/net/liveness.h"
#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

namespace {

Lifetime block_lifetime(const StepIr& ir, int slot) {
  Lifetime life{byte_size(ir.slots[slot]->tensor.dtype(), ir.slots[slot]->row.prepend(ir.ring))};
  const std::vector<size_t>& all = ir.users(slot);
  const auto steps = static_cast<int>(ir.ops.size());
  const auto is_after = [&](size_t i) { return ir.ops[i]->phase == Phase::after; };
  const auto in_first_stage = [&](size_t i) { return !is_after(i) && ir.ops[i]->stage == ir.ops[all[0]]->stage; };
  if (ir.stages > 1 && !std::ranges::all_of(all, is_after) && !std::ranges::all_of(all, in_first_stage)) {
    life.last = 2 * steps;
    return life;
  }
  for (const size_t i : all) {
    const auto op = static_cast<int>(i);
    use_at(life, ir.ops[i]->phase == Phase::before ? op : is_after(i) ? steps + 1 + op : steps);
  }
  return life;
}

void lay_out_blocks(StepIr& ir) {
  const KnownUses known(ir);
  const auto use = [](StepSlot& slot, const Tensor& whole) {
    slot.whole = whole;
    slot.base = whole.offset();
    slot.stride = static_cast<size_t>(byte_size(whole.dtype(), slot.row));
    slot.show(0);
  };
  std::vector<StepSlot*> shared;
  std::vector<Lifetime> lifetimes;
  for (size_t s = 0; s < ir.slots.size(); ++s) {
    StepSlot& slot = *ir.slots[s];
    if (slot.kind != Kind::block || slot.unused) continue;
    if (!ir.runs_pass("layout") || slot.tensor.dtype() == DType::string) {
      use(slot, Tensor::empty(slot.tensor.dtype(), slot.row.prepend(ir.ring), ir.spec.device));
      continue;
    }
    shared.push_back(&slot);
    lifetimes.push_back(block_lifetime(ir, static_cast<int>(s)));
  }
  const ArenaPlan plan = plan_arena(lifetimes);
  const Tensor arena = Tensor::empty(DType::uint8, {plan.bytes}, ir.spec.device);
  for (size_t i = 0; i < shared.size(); ++i)
    use(*shared[i], Tensor::view(arena.storage(), static_cast<size_t>(plan.offsets[i]), shared[i]->tensor.dtype(),
                                 shared[i]->row.prepend(ir.ring)));
}

// Whether the slot has the same bytes in every run of a timestep: kernels that are chosen once write it where it is.
bool may_lay_out(const StepIr& ir, int index) {
  const StepSlot& slot = *ir.slots[index];
  if (!ir.runs_pass("layout") || slot.reshaped || slot.tensor.dtype() == DType::string) return false;
  return std::ranges::all_of(ir.users(index), [&](size_t i) {
    return ir.ops[i]->phase == Phase::step && (ir.ops[i]->kernel || ir.ops[i]->plain_copy) && !ir.ops[i]->nested;
  });
}

// What is not laid out has a tensor of its own.
void allocate_scratch(StepIr& ir) {
  const KnownUses known(ir);
  for (size_t s = 0; s < ir.slots.size(); ++s) {
    StepSlot& slot = *ir.slots[s];
    if (slot.kind != Kind::scratch || !slot.typed || slot.unused || slot.shape_only || slot.tensor.storage()) continue;
    slot.laid_out = may_lay_out(ir, static_cast<int>(s));
    if (!slot.laid_out) slot.tensor = Tensor::empty(slot.tensor.dtype(), slot.tensor.shape(), ir.spec.device);
  }
}

}  // namespace

void lay_out(StepIr& ir) {
  for (const StepTotal& total : ir.totals)
    if (ir.is_accumulator(total.slot)) ir.slots[total.slot]->tensor = total.tensor;
  lay_out_blocks(ir);
  for (const auto& op : ir.ops)
    if (!ir.kernels_fit(*op)) op->kernel = nullptr;
  allocate_scratch(ir);
}

}  // namespace stepnet
