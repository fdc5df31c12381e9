#include "recurrent/step/ir.h"

#include <fmt/format.h>

#include <algorithm>

namespace stepnet {
namespace {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::link:
      return "link";
    case Kind::slab:
      return "slab";
    case Kind::scratch:
      return "scratch";
    case Kind::external:
      return "external";
    case Kind::timestep:
      return "timestep";
    case Kind::block:
      return "block";
  }
  return "";
}

const char* phase_name(Phase phase) {
  return phase == Phase::before ? "before" : phase == Phase::after ? "after" : "step";
}

std::string names_of(const StepIr& ir, const std::vector<int>& slots) {
  std::vector<std::string> names;
  for (const int s : slots) names.push_back(s < 0 ? "-" : ir.slots[s]->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The input that is there only in the timestep, and who makes it.
std::string waits_for(const StepIr& ir, const StepOp& op, const SlotUses& uses) {
  for (const int s : op.in_slots) {
    if (s < 0 || !ir.varies(s)) continue;
    const StepSlot& slot = *ir.slots[s];
    if (slot.kind == Kind::link) {
      const auto links = uses.links.find(slot.whole.storage().get());
      const bool written = slot.changes || (links != uses.links.end() && links->second.written > 0);
      if (written) return fmt::format("reads \"{}\", a state that timesteps write", slot.name);
      continue;
    }
    for (const size_t w : uses.writers[s])
      if (ir.ops[w]->phase == Phase::step && ir.ops[w].get() != &op)
        return fmt::format("reads \"{}\", which {} makes in the timestep", slot.name, ir.ops[w]->op.def.type());
  }
  return "";
}

// Why the operator runs in each timestep rather than once per block; "" if it does not.
std::string why_in_steps(const StepIr& ir, const StepOp& op, const SlotUses& uses) {
  if (op.phase != Phase::step) return "";
  const OpSpec& spec = *op.op.spec;
  if (ir.spec.steps < 2) return "there is no second timestep";
  if (op.nested) return "runs a net of its own";
  if (op.plain_copy) return "copies into rows that are linked";
  if (!op.kernel) return "its shapes depend on data";
  if (spec.random) return "draws numbers";
  if (spec.side_effect) return "has effects beside its outputs";
  const std::string waits = waits_for(ir, op, uses);
  if (!waits.empty()) return waits;
  if (op.fused) return "";
  if (!spec.rowwise) return "the operator does not say that its rows are independent";
  return "nothing is gained by running it for a block";
}

std::string op_text(const StepIr& ir, const StepOp& op, const SlotUses& uses) {
  std::string text = fmt::format("  {:<7} ", phase_name(op.phase));
  if (ir.stages > 1) text += fmt::format("stage {} ", op.stage);
  const bool adds = op.accumulate != 0;
  text += fmt::format("{} {} {}({})", names_of(ir, op.out_slots), adds ? "+=" : "=",
                      op.fused ? "fused " + op.fused_types : op.op.def.type(), names_of(ir, op.in_slots));
  if (const std::string why = why_in_steps(ir, op, uses); !why.empty()) text += "; " + why;
  if (op.scans) text += "; each element goes through the block by itself";
  return text + "\n";
}

std::string type_text(const StepSlot& slot) {
  if (!slot.typed) return "of a shape that depends on data";
  return fmt::format("{}{}", dtype_name(slot.tensor.dtype()), slot.tensor.shape());
}

std::string slot_text(const StepIr& ir, const StepSlot& slot) {
  std::string text = fmt::format("  {:<8} \"{}\" {}", kind_name(slot.kind), slot.name, type_text(slot));
  if (slot.kind == Kind::link)
    text += fmt::format(" of {}{}", slot.whole.shape(),
                        slot.cycle > 0 ? fmt::format(", a ring of {} rows", slot.cycle) : "");
  if (slot.kind == Kind::block) text += fmt::format(", {} rows", ir.ring);
  if (slot.total) text += slot.grows ? ", added up by its kernel" : ", added up after each timestep";
  return text + "\n";
}

}  // namespace

std::string to_text(const StepIr& ir) {
  std::string text = fmt::format("step net \"{}\": T {}, B {}, block {}, {} stage{}{}\n", ir.net_name, ir.spec.steps,
                                 ir.spec.batch, ir.spec.block, ir.stages, ir.stages == 1 ? "" : "s",
                                 ir.spec.descending ? ", from the last timestep" : "");
  const SlotUses uses = ir.find_uses();
  for (const auto& op : ir.ops) text += op_text(ir, *op, uses);
  for (size_t s = 0; s < ir.slots.size(); ++s)
    if (uses.uses[s] > 0 && !ir.slots[s]->unused) text += slot_text(ir, *ir.slots[s]);
  return text;
}

}  // namespace stepnet
