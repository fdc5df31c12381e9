// Passes over a StepIr: which operators run for a block of timesteps at once.
//
// An operator can if each row of its outputs depends on the same row of its inputs and on what does not change over
// time, or if its outputs add up rows. Timesteps are stacked along the first dimension.
#include <algorithm>

#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"

namespace stepnet {
namespace {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

// Whether earlier stages are all that write what the linked slot shows.
bool is_made_earlier(const StepIr& ir, size_t op, int index) {
  const StepSlot& slot = *ir.slots[index];
  if (slot.cycle > 0 && slot.first != slot.kept) return false;  // its rows go round within a block
  return ir.links_like(index).last_stage < ir.ops[op]->stage;
}

// What is there before the first timestep of the block: the sequence, values of the forward pass, what others hoisted,
// what earlier stages made.
bool read_before(const StepIr& ir, size_t op, int index) {
  if (index < 0 || !ir.varies(index)) return true;
  const StepSlot& slot = *ir.slots[index];
  const std::vector<size_t>& by = ir.writers(index);
  if (slot.kind == Kind::link) return !slot.changes && ir.first_row(index) >= 0 && is_made_earlier(ir, op, index);
  if (by.empty()) return slot.kind == Kind::slab || slot.kind == Kind::timestep || slot.shape_only;
  if (by.size() != 1) return false;
  const StepOp& writer = *ir.ops[by[0]];
  return writer.stage < ir.ops[op]->stage || (by[0] < op && writer.phase == Phase::before);
}

bool runs_before(const StepIr& ir, size_t index) {
  const StepOp& op = *ir.ops[index];
  return may_hoist(ir, op) && std::ranges::all_of(op.in_slots, [&](int s) { return read_before(ir, index, s); });
}

// What is still there after the last timestep of the block, every timestep's value in a row of its own.
bool read_after(const StepIr& ir, size_t op, int index) {
  if (index < 0 || !ir.varies(index)) return true;
  const StepSlot& slot = *ir.slots[index];
  const std::vector<size_t>& by = ir.writers(index);
  if (ir.is_total(index)) return false;
  if (slot.kind == Kind::slab || slot.kind == Kind::timestep) return by.empty() || by.back() < op;
  if (slot.kind == Kind::scratch) return slot.shape_only || (!by.empty() && by.back() < op);
  // The row of a state's gradient that is not added to any more is the one that arrives from the step before.
  const int64_t row = ir.first_row(index);
  if (row < 0 || (slot.changes && (row > 0) != ir.spec.descending)) return false;
  if (!by.empty()) return !slot.changes && by.back() < op && !ir.shares_storage(index);
  // Rows of a tensor that later timesteps go on writing, all beyond this one.
  const SlotUses::Links& links = ir.links_like(index);
  if (links.written == 0) return true;
  return links.rows_known && (ir.spec.descending ? links.last < row : links.first > row);
}

// Nobody waits for it before the end of the block.
bool written_after(const StepIr& ir, int index) {
  const StepSlot& slot = *ir.slots[index];
  if (ir.writers(index).size() != 1) return false;
  for (const size_t user : ir.users(index))
    if (ir.ops[user]->reads(index) && ir.ops[user]->phase != Phase::after) return false;
  if (slot.kind == Kind::link) return ir.first_row(index) >= 0 && !ir.shares_storage(index);
  return slot.kind == Kind::scratch;
}

bool runs_after(const StepIr& ir, size_t index) {
  const StepOp& op = *ir.ops[index];
  if (op.phase != Phase::step || !ir.can_stack(op)) return false;
  for (const int s : op.in_slots)
    if (!read_after(ir, index, s)) return false;
  for (size_t o = 0; o < op.out_slots.size(); ++o) {
    const int s = op.out_slots[o];
    if (s < 0) continue;
    const bool fits = ir.is_total(s) ? (op.accumulate >> o & 1) != 0 : written_after(ir, s);
    if (!fits) return false;
  }
  return true;
}

}  // namespace

// A scratch buffer gets a row for each timestep of a block.
void widen(StepIr& ir, int index) {
  if (index < 0 || ir.slots[index]->kind != Kind::scratch || ir.slots[index]->shape_only || ir.is_total(index)) return;
  StepSlot& slot = *ir.slots[index];
  slot.kind = Kind::block;
  slot.row = slot.tensor.shape();
}

// What crosses the border of a block is widened.
static void place(StepIr& ir, const StepOp& op) {
  for (const int s : op.out_slots) widen(ir, s);
  if (op.phase != Phase::after) return;
  for (const int s : op.in_slots) widen(ir, s);
}

void plan_block_size(StepIr& ir) {
  const auto in_block = [&](int s) { return s >= 0 && ir.slots[s]->kind == Kind::block; };
  ir.after_last = std::ranges::all_of(ir.ops, [&](const auto& op) {
    return op->phase != Phase::after ||
           (std::ranges::none_of(op->in_slots, in_block) && std::ranges::none_of(op->out_slots, in_block));
  });
  // Where nothing that they read is written again, they run after the last step.
  ir.after_block = ir.spec.block;
  if (ir.stages > 1 && ir.after_last) ir.spec.block = staged_block(ir.spec.batch, ir.spec.block);
  ir.ring = ir.spec.block * ir.stages;
}

void hoist(StepIr& ir) {
  {
    const KnownUses known(ir);
    for (size_t i = 0; i < ir.ops.size(); ++i)
      if (runs_before(ir, i)) ir.ops[i]->phase = Phase::before;
  }
  if (!ir.runs_pass("fuse")) return;
  keep_cheap_in_steps(ir);
  keep_slices_in_steps(ir);
}

void defer(StepIr& ir) {
  const KnownUses known(ir);
  for (size_t i = ir.ops.size(); i-- > 0;)
    if (runs_after(ir, i)) ir.ops[i]->phase = Phase::after;
}

void widen_rows(StepIr& ir) {
  for (const auto& op : ir.ops)
    if (op->phase != Phase::step) place(ir, *op);
  widen_between_stages(ir);
  ir.placed = true;
}

}  // namespace stepnet
