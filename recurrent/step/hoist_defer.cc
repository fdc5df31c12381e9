// Which operators of a StepProgram run for a block of timesteps at once, and running them.
//
// An operator can if each row of its outputs depends on the same row of its inputs and on what does not change over
// time, or if its outputs add up rows. Timesteps are stacked along the first dimension.
#include <algorithm>
#include <numeric>

#include "core/compute/profiler.h"
#include "recurrent/step/block_size.h"
#include "recurrent/step/program.h"

namespace stepnet {
namespace {

using Kind = StepSlot::Kind;

bool contains(const std::vector<int>& slots, int slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

}  // namespace

// The row of `whole` that the slot shows at timestep 0, or -1 if it shows several, or if those of a block do not follow
// one another.
int64_t StepProgram::first_row(int index) const {
  const StepSlot& slot = *slots_[index];
  if (slot.kind != Kind::link || slot.stride == 0 || slot.row.rank() == 0 || slot.row[0] != 1) return -1;
  if (slot.cycle > 0) return slot.changes || slot.kept > 0 ? slot.first : -1;
  return static_cast<int64_t>((slot.base - slot.whole.offset()) / slot.stride);
}

Shape StepSlot::stack(int64_t steps) const { return row.with(0, row[0] * steps); }

int StepProgram::block_operators() const {
  return static_cast<int>(
      std::count_if(ops_.begin(), ops_.end(), [](const auto& op) { return op->phase != Phase::step; }));
}

bool StepProgram::is_seen_in_blocks(const Tensor& linked) const {
  const auto is_row = [&](int s) {
    return s >= 0 && slots_[s]->kind == Kind::link && slots_[s]->whole.shares_storage(linked);
  };
  return std::ranges::any_of(ops_, [&](const auto& op) {
    return op->phase != Phase::step &&
           (std::ranges::any_of(op->in_slots, is_row) || std::ranges::any_of(op->out_slots, is_row));
  });
}

bool StepProgram::varies(int slot) const { return slot >= 0 && slots_[slot]->kind != Kind::external; }

bool StepProgram::is_total(int slot) const { return slot >= 0 && slots_[slot]->total; }

StepProgram::SlotUses StepProgram::find_uses() const {
  SlotUses uses;
  uses.writers.resize(slots_.size());
  uses.users.resize(slots_.size());
  uses.uses.resize(slots_.size());
  const auto add = [](std::vector<size_t>& to, size_t op) {
    if (to.empty() || to.back() != op) to.push_back(op);
  };
  for (size_t i = 0; i < ops_.size(); ++i)
    for (const bool writes : {false, true})
      for (const int s : writes ? ops_[i]->out_slots : ops_[i]->in_slots) {
        if (s < 0) continue;
        ++uses.uses[s];
        add(uses.users[s], i);
        if (writes) add(uses.writers[s], i);
      }
  for (size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s]->kind == Kind::link) uses.links[slots_[s]->whole.storage().get()].push_back(static_cast<int>(s));
  return uses;
}

const std::vector<size_t>& StepProgram::writers(int slot) const { return uses_->writers[slot]; }

const std::vector<size_t>& StepProgram::users(int slot) const { return uses_->users[slot]; }

int StepProgram::uses_of(int slot) const { return uses_->uses[slot]; }

// The linked slots that show this tensor.
const std::vector<int>& StepProgram::links_to(const void* storage) const {
  static const std::vector<int> none;
  const auto found = uses_->links.find(storage);
  return found == uses_->links.end() ? none : found->second;
}

// Whether another linked slot shows the same tensor.
bool StepProgram::shares_storage(int slot) const {
  return std::ranges::any_of(links_to(slots_[slot]->whole.storage().get()), [&](int s) { return s != slot; });
}

// Two numbers of timesteps, so that a size that happens to be one of them is not taken for timesteps.
bool StepProgram::can_stack(const Op& op) const {
  const int64_t steps = std::min(spec_.block, spec_.steps);
  return can_stack(op, steps) && can_stack(op, steps + 1);
}

// The shapes of so many timesteps must make outputs of as many, or totals as they are.
bool StepProgram::can_stack(const Op& op, int64_t steps) const {
  const OpSpec& spec = *op.op.spec;
  if (!op.kernel || op.plain_copy || spec.random || spec.side_effect || !spec.rowwise) return false;
  std::vector<TensorType> in(op.in_slots.size()), out(op.out_slots.size());
  int64_t rows = -1;
  for (size_t i = 0; i < in.size(); ++i) {
    in[i].absent = op.in_slots[i] < 0;
    if (in[i].absent) continue;
    const StepSlot& slot = *slots_[op.in_slots[i]];
    if (!slot.typed || slot.reshaped || contains(op.out_slots, op.in_slots[i])) return false;
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
    const StepSlot& slot = *slots_[op.out_slots[o]];
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

// Whether earlier stages are all that write what the linked slot shows.
bool StepProgram::is_made_earlier(size_t op, int index) const {
  const StepSlot& slot = *slots_[index];
  if (slot.cycle > 0 && slot.first != slot.kept) return false;  // its rows go round within a block
  return std::ranges::none_of(links_to(slot.whole.storage().get()), [&](int s) {
    return std::ranges::any_of(writers(s), [&](size_t w) { return ops_[w]->stage >= ops_[op]->stage; });
  });
}

// What is there before the first timestep of the block: the sequence, values of the forward pass, what others hoisted,
// what earlier stages made.
bool StepProgram::read_before(size_t op, int index) const {
  if (index < 0 || !varies(index)) return true;
  const StepSlot& slot = *slots_[index];
  const std::vector<size_t>& by = writers(index);
  if (slot.kind == Kind::link) return !slot.changes && first_row(index) >= 0 && is_made_earlier(op, index);
  if (by.empty()) return slot.kind == Kind::slab || slot.kind == Kind::timestep || slot.shape_only;
  if (by.size() != 1) return false;
  const Op& writer = *ops_[by[0]];
  return writer.stage < ops_[op]->stage || (by[0] < op && writer.phase == Phase::before);
}

bool StepProgram::runs_before(size_t index) const {
  const Op& op = *ops_[index];
  return may_hoist(op) && std::ranges::all_of(op.in_slots, [&](int s) { return read_before(index, s); });
}

// What is still there after the last timestep of the block, every timestep's value in a row of its own.
bool StepProgram::read_after(size_t op, int index) const {
  if (index < 0 || !varies(index)) return true;
  const StepSlot& slot = *slots_[index];
  const std::vector<size_t>& by = writers(index);
  if (is_total(index)) return false;
  if (slot.kind == Kind::slab || slot.kind == Kind::timestep) return by.empty() || by.back() < op;
  if (slot.kind == Kind::scratch) return slot.shape_only || (!by.empty() && by.back() < op);
  // The row of a state's gradient that is not added to any more is the one that arrives from the step before.
  const int64_t row = first_row(index);
  if (row < 0 || (slot.changes && (row > 0) != spec_.descending)) return false;
  if (!by.empty()) return !slot.changes && by.back() < op && !shares_storage(index);
  // Rows of a tensor that later timesteps go on writing, all beyond this one.
  return std::ranges::all_of(links_to(slot.whole.storage().get()), [&](int s) {
    if (writers(s).empty()) return true;
    const int64_t written = first_row(s);
    return written >= 0 && (spec_.descending ? written < row : written > row);
  });
}

// Nobody waits for it before the end of the block.
bool StepProgram::written_after(int index) const {
  const StepSlot& slot = *slots_[index];
  if (writers(index).size() != 1) return false;
  for (const size_t user : users(index))
    if (contains(ops_[user]->in_slots, index) && ops_[user]->phase != Phase::after) return false;
  if (slot.kind == Kind::link) return first_row(index) >= 0 && !shares_storage(index);
  return slot.kind == Kind::scratch;
}

bool StepProgram::runs_after(size_t index) const {
  const Op& op = *ops_[index];
  if (op.phase != Phase::step || !can_stack(op)) return false;
  for (const int s : op.in_slots)
    if (!read_after(index, s)) return false;
  for (size_t o = 0; o < op.out_slots.size(); ++o) {
    const int s = op.out_slots[o];
    if (s < 0) continue;
    const bool fits = is_total(s) ? (op.accumulate >> o & 1) != 0 : written_after(s);
    if (!fits) return false;
  }
  return true;
}

// Whether a kernel adds to a total instead of writing the slot.
bool StepProgram::is_accumulator(int slot) const { return slot >= 0 && slots_[slot]->grows; }

// A scratch buffer gets a row for each timestep of a block.
void StepProgram::widen(int index) {
  if (index < 0 || slots_[index]->kind != Kind::scratch || slots_[index]->shape_only || is_total(index)) return;
  StepSlot& slot = *slots_[index];
  slot.kind = Kind::block;
  slot.row = slot.tensor.shape();
}

// What crosses the border of a block is widened.
void StepProgram::place(size_t index, Phase phase) {
  Op& op = *ops_[index];
  op.phase = phase;
  for (const int s : op.out_slots) widen(s);
  if (phase != Phase::after) return;
  for (const int s : op.in_slots) widen(s);
}

void StepProgram::plan_blocks() {
  spec_.block = ring_ = after_block_ = std::max<int64_t>(std::min(spec_.block, spec_.steps), 1);
  if (spec_.steps < 2) {
    if (runs_pass("fold")) fold_sums();
    if (runs_pass("fuse")) fuse_chains();
    return;
  }
  const auto check = [this](const char* pass, bool placed = false) {
    if (kChecksPasses) check_pass(pass, placed);
  };
  plan_stages();
  check("split");
  {
    const KnownUses known(*this);
    for (size_t i = 0; runs_pass("hoist") && i < ops_.size(); ++i)
      if (runs_before(i)) ops_[i]->phase = Phase::before;
  }
  if (runs_pass("fuse")) keep_slices_in_steps();
  check("hoist");
  {
    const KnownUses known(*this);
    for (size_t i = ops_.size(); spec_.backward && runs_pass("defer") && i-- > 0;)
      if (runs_after(i)) ops_[i]->phase = Phase::after;
  }
  check("defer");
  if (runs_pass("fold")) fold_sums();
  check("fold");
  for (size_t i = 0; i < ops_.size(); ++i)
    if (ops_[i]->phase != Phase::step) place(i, ops_[i]->phase);
  widen_between_stages();
  check("split", true);
  if (runs_pass("fuse")) fuse_chains();
  plan_block_size();
  check("fuse", true);
}

void StepProgram::plan_block_size() {
  const auto in_block = [&](int s) { return s >= 0 && slots_[s]->kind == Kind::block; };
  after_last_ = std::ranges::all_of(ops_, [&](const auto& op) {
    return op->phase != Phase::after ||
           (std::ranges::none_of(op->in_slots, in_block) && std::ranges::none_of(op->out_slots, in_block));
  });
  // Where nothing that they read is written again, they run after the last step.
  after_block_ = spec_.block;
  if (stages_ > 1 && after_last_) spec_.block = staged_block(spec_.batch, spec_.block);
  ring_ = spec_.block * stages_;
}

void StepProgram::bind_block(Op& op) {
  auto stacked = [&](int s) -> Tensor* {
    if (s < 0) return nullptr;
    StepSlot& slot = *slots_[s];
    if (!varies(s) || is_accumulator(s)) return &slot.tensor;
    const bool writes = slot.kind == Kind::timestep && slot.stride == 0;
    slot.stacked = writes ? Tensor::empty(DType::int32, {std::max(spec_.block, after_block_)}) : slot.whole;
    return &slot.stacked;
  };
  for (const int s : op.in_slots) op.block_in.push_back(stacked(s));
  for (const int s : op.out_slots) op.block_out.push_back(stacked(s));
}

void StepProgram::run_block(Phase phase, int stage, const Block& block, RunContext& run) {
  const auto runs = [&](const auto& op) { return op->phase == phase && op->stage == stage; };
  if (std::ranges::none_of(ops_, runs)) return;
  for (const auto& slot : slots_) {
    if (slot->shape_only) {
      slot->stacked.set_type(slot->tensor.dtype(), slot->tensor.shape().with(0, slot->tensor.dim(0) * block.count));
      continue;
    }
    if (!slot->stacked.defined()) continue;
    if (slot->kind == Kind::timestep && slot->stride == 0) {
      slot->stacked.set_view({block.count}, slot->stacked.offset());
      if (slot->stacked.is_dry()) continue;
      const std::span<int32_t> timesteps = slot->stacked.span<int32_t>();
      std::iota(timesteps.begin(), timesteps.end(), static_cast<int32_t>(block.first));
      continue;
    }
    slot->stacked = slot->whole;
    const int64_t row = slot->kind == Kind::block ? block.first % ring_ : block.first;
    slot->stacked.set_view(slot->stack(block.count), slot->place(row));
  }
  RunContext in_block = run;
  const int64_t blocks = spec_.steps / (phase == Phase::after ? after_block_ : spec_.block);
  in_block.packs = packs_weights(blocks) ? &packs_ : nullptr;
  for (const auto& op : ops_) {
    if (!runs(op)) continue;
    try {
      const double start = run.profiler ? now_seconds() : 0;
      Call call(op->block_in, op->block_out, in_block);
      call.accumulate_mask = op->accumulate;
      run_kernel(*op, call);
      if (run.profiler) run.profiler->record(op->profile_name, now_seconds() - start, 0, 0);
    } catch (Error& e) {
      add_place(e, *op);
      e.add("in", fmt::format("timesteps {} to {} of step net \"{}\"", block.first, block.first + block.count - 1,
                              net_name_));
      throw;
    }
  }
}

}  // namespace stepnet
