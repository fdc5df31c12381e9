#include "recurrent/step/ir.h"

#include <algorithm>

namespace stepnet {

using Kind = StepSlot::Kind;

bool StepOp::reads(int slot) const { return std::ranges::find(in_slots, slot) != in_slots.end(); }
bool StepOp::writes(int slot) const { return std::ranges::find(out_slots, slot) != out_slots.end(); }

size_t StepSlot::row_bytes() const {
  return static_cast<size_t>(whole.shape().size_between(1, whole.rank())) * dtype_size(whole.dtype());
}

void StepSlot::lead_to(const LinkTarget& link) {
  whole = link.whole;
  stride = row_bytes();
  base = whole.offset() + (link.rows > 0 ? 0 : static_cast<size_t>(link.offset - link.origin) * stride);
  cycle = link.rows > 0 ? whole.dim(0) - link.kept : 0;
  kept = link.kept;
  first = link.offset;
  in_segment = link.segment_of > 0;
}

void StepSlot::take_slab(const Tensor& rows, int64_t origin) {
  whole = rows;
  base = whole.offset() - static_cast<size_t>(origin) * stride;
  show(origin);
}

void StepSlot::show(int64_t t) {
  tensor = whole;
  tensor.set_view(row, place(t));
}

Shape StepSlot::stack(int64_t steps) const { return row.with(0, row[0] * steps); }

int StepIr::add_slot(StepSlot slot) {
  const int index = static_cast<int>(slots.size());
  slots_by_name[slot.name] = index;
  slots.push_back(std::make_unique<StepSlot>(std::move(slot)));
  return index;
}

int StepIr::slot_of(const std::string& name) const {
  count_name_lookup();
  const auto it = slots_by_name.find(name);
  return it == slots_by_name.end() ? -1 : it->second;
}

// A kernel that was chosen once relies on shapes that never change.
bool StepIr::kernels_fit(const StepOp& op) const {
  auto steady = [&](int s) { return s < 0 || !slots[s]->reshaped; };
  return std::all_of(op.in_slots.begin(), op.in_slots.end(), steady) &&
         std::all_of(op.out_slots.begin(), op.out_slots.end(), steady);
}

void StepIr::add_place(Error& error, const StepOp& op) const {
  BoundOp placed = op.op;
  placed.net_name = net_name;
  add_op_context(error, placed);
}

// The operator's output that is the slot.
size_t StepIr::output_of(const StepOp& op, int slot) const {
  return static_cast<size_t>(std::ranges::find(op.out_slots, slot) - op.out_slots.begin());
}

// The row of `whole` that the slot shows at timestep 0, or -1 if it shows several, or if those of a block do not follow
// one another.
int64_t StepIr::first_row(int index) const {
  const StepSlot& slot = *slots[index];
  if (slot.kind != Kind::link || slot.stride == 0 || slot.row.rank() == 0 || slot.row[0] != 1) return -1;
  if (slot.cycle > 0) return slot.changes || slot.kept > 0 ? slot.first : -1;
  return static_cast<int64_t>((slot.base - slot.whole.offset()) / slot.stride);
}

bool StepIr::varies(int slot) const { return slot >= 0 && slots[slot]->kind != Kind::external; }

TensorType StepIr::type_of(int slot) const {
  const StepSlot& s = *slots[slot];
  return s.typed ? TensorType::of(s.tensor.dtype(), s.tensor.shape()) : TensorType();
}

bool StepIr::is_total(int slot) const { return slot >= 0 && slots[slot]->total; }

SlotUses StepIr::find_uses() const {
  SlotUses uses;
  uses.writers.resize(slots.size());
  uses.users.resize(slots.size());
  uses.uses.resize(slots.size());
  const auto add = [](std::vector<size_t>& to, size_t op) {
    if (to.empty() || to.back() != op) to.push_back(op);
  };
  for (size_t i = 0; i < ops.size(); ++i)
    for (const bool writes : {false, true})
      for (const int s : writes ? ops[i]->out_slots : ops[i]->in_slots) {
        if (s < 0) continue;
        ++uses.uses[s];
        add(uses.users[s], i);
        if (writes) add(uses.writers[s], i);
      }
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s]->kind != Kind::link) continue;
    SlotUses::Links& links = uses.links[slots[s]->whole.storage().get()];
    ++links.slots;
    if (uses.writers[s].empty()) continue;
    const int64_t row = first_row(static_cast<int>(s));
    links.rows_known = links.rows_known && row >= 0;
    links.first = links.written == 0 ? row : std::min(links.first, row);
    links.last = links.written == 0 ? row : std::max(links.last, row);
    ++links.written;
    for (const size_t w : uses.writers[s]) links.last_stage = std::max(links.last_stage, ops[w]->stage);
  }
  return uses;
}

const std::vector<size_t>& StepIr::writers(int slot) const { return known_uses->writers[slot]; }

const std::vector<size_t>& StepIr::users(int slot) const { return known_uses->users[slot]; }

int StepIr::uses_of(int slot) const { return known_uses->uses[slot]; }

// Those that show the slot's tensor.
const SlotUses::Links& StepIr::links_like(int slot) const {
  static const SlotUses::Links none;
  const auto found = known_uses->links.find(slots[slot]->whole.storage().get());
  return found == known_uses->links.end() ? none : found->second;
}

// Whether another linked slot shows the same tensor.
bool StepIr::shares_storage(int slot) const {
  return links_like(slot).slots > (slots[slot]->kind == Kind::link ? 1 : 0);
}

// Two numbers of timesteps, so that a size that happens to be one of them is not taken for timesteps.
bool StepIr::can_stack(const StepOp& op) const {
  const int64_t steps = std::min(spec.block, spec.steps);
  return can_stack(op, steps) && can_stack(op, steps + 1);
}

// The shapes of so many timesteps must make outputs of as many, or totals as they are.
bool StepIr::can_stack(const StepOp& op, int64_t steps) const {
  const OpSpec& spec = *op.op.spec;
  if (!op.kernel || op.plain_copy || spec.random || spec.side_effect || !spec.rowwise) return false;
  std::vector<TensorType> in(op.in_slots.size()), out(op.out_slots.size());
  int64_t rows = -1;
  for (size_t i = 0; i < in.size(); ++i) {
    in[i].absent = op.in_slots[i] < 0;
    if (in[i].absent) continue;
    const StepSlot& slot = *slots[op.in_slots[i]];
    if (!slot.typed || slot.reshaped || op.writes(op.in_slots[i])) return false;
    in[i] = TensorType::of(slot.tensor.dtype(), slot.tensor.shape());
    if (slot.kind == Kind::external) continue;
    if (slot.tensor.rank() == 0 || (rows >= 0 && slot.tensor.dim(0) != rows)) return false;
    rows = slot.tensor.dim(0);
    in[i].shape = in[i].shape.with(0, rows * steps);
  }
  if (rows < 0) return false;
  for (size_t o = 0; o < out.size(); ++o) out[o].absent = op.out_slots[o] < 0;
  try {
    infer_types(op.op, in, out);
  } catch (const Error&) {
    return false;  // shapes that fit in one timestep and not in several: it stays where it is
  }
  if (spec.rowwise(op.op.args.get(), ShapeCall(in, out)) < 1) return false;
  for (size_t o = 0; o < out.size(); ++o) {
    if (out[o].absent) continue;
    const StepSlot& slot = *slots[op.out_slots[o]];
    if (!out[o].known || !slot.typed || slot.reshaped) return false;
    const Shape& one = slot.tensor.shape();
    if ((op.accumulate >> o & 1) != 0) {
      if (!spec.sums_rows || !(out[o].shape == one)) return false;
    } else if (one.rank() == 0 || !(out[o].shape == one.with(0, one[0] * steps))) {
      return false;
    }
  }
  return true;
}

// Whether a kernel adds to a total instead of writing the slot.
bool StepIr::is_accumulator(int slot) const { return slot >= 0 && slots[slot]->grows; }

// The columns that the operator takes from its input, or puts its inputs into; empty if it does not do that alone.
std::vector<int64_t> StepIr::columns_of(const StepOp& op, bool puts) const {
  const auto& fn = puts ? op.op.spec->puts_columns : op.op.spec->takes_columns;
  if (!fn || !op.kernel || op.plain_copy) return {};
  std::vector<TensorType> in, out;
  const auto add = [&](std::vector<TensorType>& types, int s) {
    types.push_back(s < 0 ? TensorType() : type_of(s));
    types.back().absent = s < 0;
  };
  for (const int s : op.in_slots) add(in, s);
  for (const int s : op.out_slots) add(out, s);
  return fn(op.op.args.get(), ShapeCall(in, out));
}

// Of what links show: the stage of the first operator that uses it.
std::map<const void*, int> StepIr::stages_of_storages() const {
  std::map<const void*, int> stages;
  for (const auto& op : ops)
    for (const auto* used : {&op->in_slots, &op->out_slots})
      for (const int s : *used)
        if (s >= 0 && slots[s]->kind == StepSlot::Kind::link)
          stages.emplace(slots[s]->whole.storage().get(), op->stage);
  return stages;
}

Schedule StepIr::schedule() const {
  Schedule schedule;
  schedule.steps = spec.steps;
  schedule.block = spec.block;
  schedule.after_block = after_block;
  schedule.ring = ring;
  schedule.stages = stages;
  schedule.after_last = after_last;
  schedule.descending = spec.descending;
  for (const auto& slot : slots) schedule.slots.push_back(slot.get());
  for (const auto& op : ops) {
    Schedule::Op& made = schedule.ops.emplace_back();
    made = {op->meaning, op->in_slots, op->out_slots, op->accumulate, op->phase, op->stage, op->parts, {}};
    for (size_t i = 0; i < op->block_in.size(); ++i)
      made.one_timestep.push_back(varies(op->in_slots[i]) && op->block_in[i] == &slots[op->in_slots[i]]->tensor);
  }
  // Not by slot_of(), whose calls are counted.
  for (const StepSpec::Sum& sum : spec.totals)
    if (const auto slot = slots_by_name.find(sum.name); slot != slots_by_name.end())
      schedule.totals.push_back({slot->second, sum.gradient, is_accumulator(slot->second)});
  const std::map<const void*, int> stage_of = stages_of_storages();
  std::set<const void*> seen;
  for (size_t s = 0; s < slots.size(); ++s) {
    const StepSlot& slot = *slots[s];
    if (slot.kind != StepSlot::Kind::link || !slot.changes || !seen.insert(slot.whole.storage().get()).second) continue;
    const auto stage = stage_of.find(slot.whole.storage().get());
    schedule.changing.emplace_back(static_cast<int>(s), stage == stage_of.end() ? 0 : stage->second);
  }
  return schedule;
}

constexpr int64_t kSmallBatch = 8;

static int64_t steps_of(int64_t batch, int64_t rows) { return batch <= 0 ? 1 : (rows + batch - 1) / batch; }

int64_t hoisted_block(int64_t batch) { return batch < kSmallBatch ? 2 * steps_of(batch, 64) : steps_of(batch, 128); }
int64_t deferred_block(int64_t batch) { return 2 * hoisted_block(batch); }
int64_t staged_block(int64_t batch, int64_t block) {
  return batch < kSmallBatch ? std::min(block, steps_of(batch, 64)) : block;
}

}  // namespace stepnet
