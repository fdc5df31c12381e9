// Running the timesteps of a StepProgram, and sharing them out among threads by samples.
//
// Where every operator of a timestep works on each sample by itself, each thread takes a part of the batch, a lane,
// through a whole block of timesteps, without waiting for the others in any. Otherwise operators use threads inside.
#include <algorithm>

#include "core/parallel.h"
#include "core/profile.h"
#include "recurrent/step_program.h"

namespace stepnet {
namespace {

using Kind = StepSlot::Kind;

// A product of fewer rows costs hardly less.
constexpr int64_t kLeastSamples = 4;
// Every lane reads all weights. Beyond so many bytes they come from memory, unless so many samples make up for it.
constexpr size_t kMostWeights = size_t{16} << 20;
constexpr int64_t kManySamples = 32;

// The dimension that counts the samples: behind leading ones. -1 if there is none.
int batch_dim(const Shape& shape, int64_t batch) {
  int d = 0;
  while (d < shape.rank() && shape[d] == 1) ++d;
  return d < shape.rank() && shape[d] == batch ? d : -1;
}

void add_row(const RowSum& sum, int64_t row, int64_t first, int64_t samples) {
  if (row < sum.start || row - sum.start >= sum.from.dim(0)) return;
  const Tensor to = sum.to.row(row % sum.to.dim(0));
  add_elements(sum.from.row(row - sum.start).rows(first, samples), to.rows(first, samples));
}

}  // namespace

// What `samples` of the batch have in the slot; the whole if it does not hold samples.
Shape StepProgram::lane_shape(int slot, int64_t samples) const {
  const Shape& shape = slots_[slot]->tensor.shape();
  if (!varies(slot) || slots_[slot]->kind == Kind::timestep) return shape;
  return shape.with(batch_dim(shape, spec_.batch), samples);
}

// Whether the operator gives the same for some samples alone as for these among all.
bool StepProgram::works_on_samples(const Op& op, int64_t samples) const {
  const OpSpec& spec = *op.op.spec;
  if (!op.kernel || op.plain_copy || spec.random || spec.side_effect || !(spec.rowwise || op.fused)) return false;
  int dims = 0;
  const auto holds_samples = [&](int s) {
    const StepSlot& slot = *slots_[s];
    const int d = batch_dim(slot.tensor.shape(), spec_.batch);
    dims = std::max(dims, d + 1);
    return slot.typed && !slot.reshaped && !is_total(s) && d >= 0 && slot.kind != Kind::timestep;
  };
  const auto is_vector = [&](int s) {
    const Tensor& t = slots_[s]->tensor;
    return !varies(s) && t.size() == t.dim(t.rank() - 1);
  };
  if (op.fused)
    return std::ranges::all_of(op.in_slots, [&](int s) { return is_vector(s) || (varies(s) && holds_samples(s)); }) &&
           std::ranges::all_of(op.out_slots, holds_samples);
  std::vector<TensorType> in(op.in_slots.size()), out(op.out_slots.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const int s = op.in_slots[i];
    in[i].absent = s < 0;
    if (s < 0) continue;
    if (varies(s) && slots_[s]->kind != Kind::timestep && !holds_samples(s)) return false;
    in[i] = TensorType::of(slots_[s]->tensor.dtype(), lane_shape(s, samples));
  }
  for (size_t o = 0; o < out.size(); ++o) {
    out[o].absent = op.out_slots[o] < 0;
    if (!out[o].absent && !holds_samples(op.out_slots[o])) return false;
  }
  try {
    infer_types(op.op, in, out);
  } catch (const Error&) {
    return false;  // a parameter has the size of the batch
  }
  for (size_t o = 0; o < out.size(); ++o)
    if (!out[o].absent && !(out[o].known && out[o].shape == lane_shape(op.out_slots[o], samples))) return false;
  return spec.rowwise(op.op.args.get(), ShapeCall(in, out)) >= dims;
}

size_t StepProgram::step_weight_bytes() const {
  std::set<int> externals;
  for (const auto& op : ops_)
    for (const int s : op->in_slots)
      if (op->phase == Phase::step && s >= 0 && slots_[s]->kind == Kind::external) externals.insert(s);
  size_t total = 0;
  for (const int s : externals) total += slots_[s]->tensor.bytes();
  return total;
}

// How many lanes there are for so many threads; 0 if operators use threads inside.
int StepProgram::lanes_for(int threads) const {
  if (!runs_pass("lanes") || spec_.steps == 0) return 0;
  const auto lanes = static_cast<int>(std::min<int64_t>(threads, spec_.batch / kLeastSamples));
  if (lanes < 2) return 0;
  if (spec_.batch / lanes < kManySamples && step_weight_bytes() > kMostWeights) return 0;
  for (const Total& total : totals_)
    if (!total.accumulated_by_kernel) return 0;
  const int64_t least = spec_.batch / lanes, most = (spec_.batch + lanes - 1) / lanes;
  const bool all = std::ranges::all_of(ops_, [&](const auto& op) {
    return op->phase != Phase::step || (works_on_samples(*op, least) && works_on_samples(*op, most));
  });
  return all ? lanes : 0;
}

// Shows the lane its part of what this run reads and writes.
void StepProgram::bind_lane(Lane& lane) {
  lane.moving.clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    const StepSlot& slot = *slots_[s];
    Tensor& tensor = lane.tensors[s];
    if (slot.kind == Kind::timestep) {
      if (!tensor.defined()) tensor = Tensor::zeros(DType::int32, {1});
      lane.timestep = &tensor;
      continue;
    }
    tensor = slot.tensor;
    if (slot.unused || !slot.typed || is_total(static_cast<int>(s))) continue;
    const int d = batch_dim(tensor.shape(), spec_.batch);
    size_t before = 0;
    if (varies(static_cast<int>(s)) && d >= 0) {
      before = slot.tensor.bytes() / static_cast<size_t>(spec_.batch) * static_cast<size_t>(lane.first);
      const Shape shape = lane_shape(static_cast<int>(s), lane.samples);
      if (tensor.storage()) {
        tensor.set_view(shape, slot.tensor.offset() + before);
      } else {
        tensor.set_type(slot.tensor.dtype(), shape);
      }
    }
    if (slot.stride > 0) lane.moving.push_back({&tensor, &slot, before});
  }
}

std::unique_ptr<StepProgram::Lane> StepProgram::make_lane(int index, int count) {
  auto lane = std::make_unique<Lane>(packs_);
  lane->first = spec_.batch * index / count;
  lane->samples = spec_.batch * (index + 1) / count - lane->first;
  lane->tensors.resize(slots_.size());
  for (const auto& op : ops_) {
    if (op->phase != Phase::step) continue;
    Lane::Operator made{op.get(), {}, {}};
    for (const int s : op->in_slots) made.in.push_back(s < 0 ? nullptr : &lane->tensors[s]);
    for (const int s : op->out_slots) made.out.push_back(s < 0 ? nullptr : &lane->tensors[s]);
    lane->ops.push_back(std::move(made));
  }
  return lane;
}

void StepProgram::prepare_lanes() {
  if (const int most = serial_here() ? 1 : threads(); most != threads_) {
    threads_ = most;
    lanes_.clear();
    const int count = lanes_for(most);
    for (int i = 0; i < count; ++i) lanes_.push_back(make_lane(i, count));
  }
  for (const auto& lane : lanes_) bind_lane(*lane);
}

// The i-th of so many timesteps from `first` on, in the order of the run.
int64_t StepProgram::timestep_at(int64_t first, int64_t count, int64_t i) const {
  return spec_.descending ? first + count - 1 - i : first + i;
}

void StepProgram::run_lane(Lane& lane, int64_t first, int64_t count, const RunContext& run) {
  RunContext step = run;
  step.packs = packs_weights(spec_.steps) ? &lane.packs : nullptr;
  if (&lane != lanes_[0].get()) step.profiler = nullptr;  // one lane's time stands for all
  for (int64_t i = 0; i < count; ++i) {
    const int64_t t = timestep_at(first, count, i);
    step.timestep = t;
    if (lane.timestep) *lane.timestep->data<int32_t>() = static_cast<int32_t>(t);
    for (const Lane::Moving& m : lane.moving)
      m.tensor->set_offset(m.slot->place(m.slot->kind == Kind::block ? t - first : t) + m.before);
    for (const Lane::Operator& op : lane.ops) {
      const double start = step.profiler ? now_seconds() : 0;
      Call call(op.in, op.out, step);
      call.accumulate_mask = op.op->accumulate;
      try {
        op.op->kernel->run(op.op->op.args.get(), call);
      } catch (Error& e) {
        add_step_place(e, *op.op, t);
        throw;
      }
      if (step.profiler) step.profiler->record(op.op->profile_name, now_seconds() - start, 0, 0);
    }
    for (const RowSum& sum : *row_sums_) add_row(sum, t + sum.shift, lane.first, lane.samples);
  }
}

void StepProgram::run_steps(int64_t first, int64_t count, RunContext& run) {
  if (lanes_.empty()) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = timestep_at(first, count, i);
      run_step(t, run);
      for (const RowSum& sum : *row_sums_) add_row(sum, t + sum.shift, 0, spec_.batch);
    }
    return;
  }
  auto part = [&](int i) {
    Lane& lane = *lanes_[i];
    try {
      run_lane(lane, first, count, run);
    } catch (...) {
      lane.error = std::current_exception();
    }
  };
  parallel_parts(static_cast<int>(lanes_.size()), std::ref(part));
  for (const auto& lane : lanes_)
    if (lane->error) std::rethrow_exception(std::exchange(lane->error, nullptr));
}

void StepProgram::run(RunContext& run, const std::vector<RowSum>& row_sums) {
  row_sums_ = &row_sums;
  start_run();
  prepare_lanes();
  const bool waits = after_block_ != spec_.block;
  each_block(spec_.block, [&](int64_t first, int64_t count) {
    run_block(Phase::before, first, count, run);
    run_steps(first, count, run);
    if (!waits) run_block(Phase::after, first, count, run);
  });
  if (waits)
    each_block(after_block_, [&](int64_t first, int64_t count) { run_block(Phase::after, first, count, run); });
  row_sums_ = nullptr;
}

// Aligned to timestep 0, in the order of the run.
void StepProgram::each_block(int64_t block, const std::function<void(int64_t, int64_t)>& fn) const {
  const int64_t blocks = (spec_.steps + block - 1) / block;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = (spec_.descending ? blocks - 1 - i : i) * block;
    fn(first, std::min(block, spec_.steps - first));
  }
}

}  // namespace stepnet
