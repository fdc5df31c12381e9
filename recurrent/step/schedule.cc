// The order in which a StepProgram runs its blocks of timesteps and its stages, and which of them run at the same time.
//
// One after the other, or as a wavefront: in each turn all stages run at once, each on the block that the one before it
// had in the turn before. What can run for a whole block at once, before its timesteps and after them, uses all threads
// between the turns.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/compute/device_work.h"
#include "core/compute/parallel.h"
#include "core/tensor/dry_device.h"
#include "recurrent/step/program.h"

namespace stepnet {
namespace {

// In a dry run, counts the operators of all timesteps at once, and not again as they run. `all`: none is skipped.
class CountsSteps {
 public:
  CountsSteps(double flops, int64_t steps, bool all) : dry_(DryScope::now()) {
    if (!dry_) return;
    before_ = dry_->counts_flops;
    skips_ = dry_->skips_steps;
    dry_->counts_flops = false;
    if (all) dry_->skips_steps = false;
    dry_->flops += dry_->times * flops * static_cast<double>(steps);
  }
  ~CountsSteps() {
    if (!dry_) return;
    dry_->counts_flops = before_;
    dry_->skips_steps = skips_;
  }
  CountsSteps(const CountsSteps&) = delete;
  CountsSteps& operator=(const CountsSteps&) = delete;

 private:
  DryScope* dry_;
  bool before_ = true, skips_ = true;
};

// Each lane on a thread; throws what one of them has thrown.
template <class Lane, class Work>
void run_at_once(std::span<const std::unique_ptr<Lane>> lanes, Work work) {
  auto part = [&](int i) {
    try {
      work(*lanes[i]);
    } catch (...) {
      lanes[i]->error = std::current_exception();
    }
  };
  if (DryScope::now()) {
    std::optional<SerialScope> serial;
    if (lanes.size() > 1) serial.emplace();
    DryAtOnce at_once;
    for (size_t i = 0; i < lanes.size(); ++i) {
      at_once.next();
      part(static_cast<int>(i));
    }
  } else {
    parallel_parts(static_cast<int>(lanes.size()), std::ref(part));
  }
  for (const auto& lane : lanes)
    if (lane->error) std::rethrow_exception(std::exchange(lane->error, nullptr));
}

}  // namespace

void RowSum::add(int64_t t, int64_t first, int64_t samples) const {
  const int64_t row = t + shift;
  if (row < start || row - start >= from.dim(0)) return;
  add_elements(from.row(row - start).rows(first, samples), to.row(row % to.dim(0)).rows(first, samples));
}

// The i-th timestep of the block, in the order of the run.
int64_t StepProgram::timestep_at(const Block& block, int64_t i) const {
  return spec_.descending ? block.first + block.count - 1 - i : block.first + i;
}

// The i-th block of so many timesteps of the range, in the order of the run. Blocks are aligned to timestep 0.
StepProgram::Block StepProgram::block_at(int64_t size, int64_t i) const {
  const int64_t first = (spec_.descending ? blocks_of(size) - 1 - i : i) * size;
  return {range_.first + first, std::min(size, range_.count - first)};
}

// A stage adds to the rows of those states that its operators use.
void StepProgram::prepare_row_sums(const std::vector<RowSum>& row_sums) {
  row_sums_.resize(static_cast<size_t>(stages_));
  for (std::vector<RowSum>& sums : row_sums_) sums.clear();
  for (const RowSum& sum : row_sums) row_sums_[stage_of_storage(sum.to.storage().get())].push_back(sum);
}

int StepProgram::stage_of_storage(const void* storage) const {
  if (stages_ == 1) return 0;
  for (const auto& op : ops_) {
    const auto shows = [&](int s) {
      return s >= 0 && slots_[s]->kind == StepSlot::Kind::link && slots_[s]->whole.storage().get() == storage;
    };
    if (std::ranges::any_of(op->in_slots, shows) || std::ranges::any_of(op->out_slots, shows)) return op->stage;
  }
  return 0;
}

void StepProgram::run_steps(int stage, const Block& block, RunContext& run) {
  if (!lanes_.empty()) return run_lanes(stage, block, run);
  for (StepsAlike i(block.count, 1); i.more(); i.next()) {
    const int64_t t = timestep_at(block, *i);
    run_step(stage, t, run);
    for (const RowSum& sum : row_sums_[stage]) sum.add(t, 0, spec_.batch);
  }
}

void StepProgram::run_lanes(int stage, const Block& block, const RunContext& run) {
  const size_t count = lanes_.size() / static_cast<size_t>(stages_);
  run_at_once(std::span<const std::unique_ptr<Lane>>(lanes_).subspan(static_cast<size_t>(stage) * count, count),
              [&](Lane& lane) { run_lane(lane, block, run); });
}

void StepProgram::run_in_turn(const Block& block, RunContext& run) {
  for (int stage = 0; stage < stages_; ++stage) {
    run_block(Phase::before, stage, block, run);
    run_steps(stage, block, run);
  }
}

void StepProgram::run_after(RunContext& run, const Block& block) {
  for (int stage = 0; stage < stages_; ++stage) run_block(Phase::after, stage, block, run);
}

// Stage s is s blocks behind the first.
void StepProgram::run_wave(int64_t turn, RunContext& run) {
  const int64_t first = std::max<int64_t>(turn - blocks_of(spec_.block) + 1, 0);
  const int64_t end = std::min<int64_t>(turn + 1, stages_);
  const auto block_of_stage = [&](int64_t stage) { return block_at(spec_.block, turn - stage); };
  for (int64_t stage = first; stage < end; ++stage)
    run_block(Phase::before, static_cast<int>(stage), block_of_stage(stage), run);
  // Alone in the first turn and in the last, a stage has all threads for its products.
  if (end - first == 1) return run_lane(*lanes_[first], block_of_stage(first), run);
  if (spec_.device.kind != DeviceKind::cpu && !DryScope::now())
    return device_work(spec_.device.kind).branches(spec_.device, static_cast<int>(end - first), [&](int i) {
      run_lane(*lanes_[first + i], block_of_stage(first + i), run);
    });
  run_at_once(std::span<const std::unique_ptr<Lane>>(lanes_).subspan(first, end - first),
              [&](Lane& lane) { run_lane(lane, block_of_stage(lane.stage), run); });
}

void StepProgram::run(RunContext& run, const std::vector<RowSum>& row_sums) {
  run_range(run, row_sums, {0, spec_.steps}, true);
}

void StepProgram::run_range(RunContext& run, const std::vector<RowSum>& row_sums, const StepRange& range, bool again) {
  // Shapes that timesteps hand to the backward step net as numbers, or take from there, are those of each.
  const auto holds_numbers = [](const auto& slot) {
    const DType type = slot->tensor.dtype();
    return slot->kind == StepSlot::Kind::slab && (type == DType::int32 || type == DType::int64);
  };
  const auto takes_numbers = [](const auto& op) { return !op->kernel && !op->nested && !op->plain_copy; };
  const bool all = std::ranges::any_of(slots_, holds_numbers) || std::ranges::any_of(ops_, takes_numbers);
  const CountsSteps counts(step_flops_, range.count, all);
  range_ = range;
  prepare_row_sums(row_sums);
  start_run(again);
  prepare_lanes();
  if (may_capture(run)) {
    run_captured(run);
  } else {
    run_blocks(run);
  }
}

void StepProgram::run_blocks(RunContext& run) {
  const bool wave = wave_ && !run.profiler;  // which would mix up the times of stages
  const int64_t blocks = blocks_of(spec_.block);
  const int64_t behind = wave ? stages_ - 1 : 0;
  for (StepsAlike next(blocks + behind, stages_ + 1); next.more(); next.next()) {
    const int64_t turn = *next;
    if (wave) {
      run_wave(turn, run);
    } else {
      run_in_turn(block_at(spec_.block, turn), run);
    }
    if (!after_last_ && turn >= behind) run_after(run, block_at(spec_.block, turn - behind));
  }
  const int64_t after = after_last_ ? blocks_of(after_block_) : 0;
  for (StepsAlike i(after, 1); i.more(); i.next()) run_after(run, block_at(after_block_, *i));
}

}  // namespace stepnet
