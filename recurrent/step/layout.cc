// A pass over a StepProgram: slots that are never alive at the same time have the same bytes.
//
// Scratch lives within a timestep of one stage, from the operator that writes it to the last that reads it. Lanes are
// at different operators, and perhaps stages, so each has its samples' part of every slot in an arena of its own;
// without lanes, all stages share one. A slot of blocks lives from its first operator to its last one within a turn:
// the operators of all stages that run in front of blocks, the steps of all stages at once, the operators behind
// blocks. This holds if stages run in turn, too: what is not alive at once in a turn is then not alive at once in a
// block either. What crosses stages is always alive, because each of them may be at another block.
#include <algorithm>

#include "recurrent/step/program.h"

namespace stepnet {

using Kind = StepSlot::Kind;

Lifetime StepProgram::block_lifetime(int slot) const {
  Lifetime life{byte_size(slots_[slot]->tensor.dtype(), slots_[slot]->row.prepend(ring_))};
  const std::vector<size_t>& all = users(slot);
  const auto steps = static_cast<int>(ops_.size());
  const auto is_after = [&](size_t i) { return ops_[i]->phase == Phase::after; };
  const auto in_first_stage = [&](size_t i) { return !is_after(i) && ops_[i]->stage == ops_[all[0]]->stage; };
  if (stages_ > 1 && !std::ranges::all_of(all, is_after) && !std::ranges::all_of(all, in_first_stage)) {
    life.last = 2 * steps;
    return life;
  }
  for (const size_t i : all) {
    const auto op = static_cast<int>(i);
    use_at(life, ops_[i]->phase == Phase::before ? op : is_after(i) ? steps + 1 + op : steps);
  }
  return life;
}

void StepProgram::lay_out_blocks() {
  const KnownUses known(*this);
  const auto use = [](StepSlot& slot, const Tensor& whole) {
    slot.whole = whole;
    slot.base = whole.offset();
    slot.stride = static_cast<size_t>(byte_size(whole.dtype(), slot.row));
    slot.show(0);
  };
  std::vector<StepSlot*> shared;
  std::vector<Lifetime> lifetimes;
  for (size_t s = 0; s < slots_.size(); ++s) {
    StepSlot& slot = *slots_[s];
    if (slot.kind != Kind::block || slot.unused) continue;
    if (!runs_pass("layout") || slot.tensor.dtype() == DType::string) {
      use(slot, Tensor::empty(slot.tensor.dtype(), slot.row.prepend(ring_), spec_.device));
      continue;
    }
    shared.push_back(&slot);
    lifetimes.push_back(block_lifetime(static_cast<int>(s)));
  }
  const ArenaPlan plan = plan_arena(lifetimes);
  const Tensor arena = Tensor::empty(DType::uint8, {plan.bytes}, spec_.device);
  for (size_t i = 0; i < shared.size(); ++i)
    use(*shared[i], Tensor::view(arena.storage(), static_cast<size_t>(plan.offsets[i]), shared[i]->tensor.dtype(),
                                 shared[i]->row.prepend(ring_)));
}

// Whether the slot has the same bytes in every run of a timestep: kernels that are chosen once write it where it is.
bool StepProgram::may_lay_out(int index) const {
  const StepSlot& slot = *slots_[index];
  if (!runs_pass("layout") || slot.reshaped || slot.tensor.dtype() == DType::string) return false;
  return std::ranges::all_of(users(index), [&](size_t i) {
    return ops_[i]->phase == Phase::step && (ops_[i]->kernel || ops_[i]->plain_copy) && !ops_[i]->nested;
  });
}

// What is not laid out has a tensor of its own.
void StepProgram::allocate_scratch() {
  const KnownUses known(*this);
  for (size_t s = 0; s < slots_.size(); ++s) {
    StepSlot& slot = *slots_[s];
    if (slot.kind != Kind::scratch || !slot.typed || slot.unused || slot.shape_only || slot.tensor.storage()) continue;
    slot.laid_out = may_lay_out(static_cast<int>(s));
    if (!slot.laid_out) slot.tensor = Tensor::empty(slot.tensor.dtype(), slot.tensor.shape(), spec_.device);
  }
}

// The shape of the lane's part; of the whole if there are no lanes.
Shape StepProgram::shape_in(const Lane* lane, int slot) const {
  const bool has_all = !lane || lane->samples == spec_.batch;
  return has_all ? slots_[slot]->tensor.shape() : lane_shape(slot, lane->samples);
}

// What the lane does not use is never alive. A point is an operator, and the end of the step, when totals are added up.
std::vector<Lifetime> StepProgram::scratch_lifetimes(const std::vector<int>& slots, const Lane* lane) const {
  std::vector<Lifetime> lifetimes(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const int s = slots[i];
    if (lane && !lane->used[s]) continue;
    lifetimes[i].bytes = byte_size(slots_[s]->tensor.dtype(), shape_in(lane, s));
    for (const size_t op : users(s)) use_at(lifetimes[i], static_cast<int>(op));
    if (is_total(s)) use_at(lifetimes[i], static_cast<int>(ops_.size()));
  }
  return lifetimes;
}

void StepProgram::lay_out_scratch() {
  const KnownUses known(*this);
  std::vector<int> slots;
  for (size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s]->laid_out) slots.push_back(static_cast<int>(s));
  for (const int s : slots) slots_[s]->tensor.drop_bytes();
  std::vector<Lane*> lanes;
  for (const auto& lane : lanes_) lanes.push_back(lane.get());
  if (lanes.empty()) lanes.push_back(nullptr);
  std::vector<ArenaPlan> plans;
  int64_t bytes = 0;
  for (const Lane* lane : lanes) bytes += plans.emplace_back(plan_arena(scratch_lifetimes(slots, lane))).bytes;
  // Parts of a few bytes may take more than the whole does, because each is rounded up.
  if (bytes > bytes_apart(scratch_lifetimes(slots, nullptr))) {
    for (const int s : slots)
      slots_[s]->tensor = Tensor::empty(slots_[s]->tensor.dtype(), slots_[s]->tensor.shape(), spec_.device);
    return;
  }
  const Tensor arena = Tensor::empty(DType::uint8, {bytes}, spec_.device);
  int64_t start = 0;
  for (size_t l = 0; l < lanes.size(); start += plans[l++].bytes) {
    for (size_t i = 0; i < slots.size(); ++i) {
      const int s = slots[i];
      if (lanes[l] && !lanes[l]->used[s]) continue;
      Tensor& tensor = lanes[l] ? lanes[l]->tensors[s] : slots_[s]->tensor;
      tensor = Tensor::view(arena.storage(), static_cast<size_t>(start + plans[l].offsets[i]),
                            slots_[s]->tensor.dtype(), shape_in(lanes[l], s));
    }
  }
}

}  // namespace stepnet
