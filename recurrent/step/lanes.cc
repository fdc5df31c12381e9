// Lanes of a StepProgram: operators of one stage and samples that one thread takes through a block of timesteps.
//
// Where every operator of a timestep works on each sample by itself, each thread takes a part of the batch, without
// waiting for the others in any timestep. Where not, a lane may still have a stage's operators and the whole batch, so
// that threads work on different stages. Otherwise operators use threads inside.
#include <algorithm>

#include "core/compute/parallel.h"
#include "core/compute/profiler.h"
#include "core/tensor/dry_device.h"
#include "recurrent/step/program.h"

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

// Whether the operators of a timestep can work on other tensors than those of their slots.
bool StepProgram::may_use_lanes() const {
  const auto may = [&](const auto& op) {
    return op->phase != Phase::step || (op->kernel && !op->plain_copy && !op->op.spec->random &&
                                        std::ranges::none_of(op->out_slots, [&](int s) { return is_total(s); }));
  };
  return std::ranges::all_of(totals_, [](const Total& t) { return t.accumulated_by_kernel; }) &&
         std::ranges::all_of(ops_, may);
}

// How many lanes there are in each stage for so many threads; 0 if operators use threads inside.
int StepProgram::lanes_for(int threads) const {
  if (!runs_pass("lanes") || spec_.steps == 0 || spec_.device.kind != DeviceKind::cpu) return 0;
  const auto lanes = static_cast<int>(std::min<int64_t>(threads, spec_.batch / kLeastSamples));
  if (lanes < 2 || !may_use_lanes()) return 0;
  if (spec_.batch / lanes < kManySamples && step_weight_bytes() > kMostWeights) return 0;
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
    if (slot.kind == Kind::timestep && slot.stride == 0) {
      if (!tensor.defined()) tensor = Tensor::zeros(DType::int32, {1});
      lane.timestep = &tensor;
      continue;
    }
    if (slot.laid_out && !slot.tensor.storage()) continue;  // the lane has a part of its own
    tensor = slot.tensor;
    if (!lane.used[s] || slot.unused || !slot.typed || is_total(static_cast<int>(s))) continue;
    const int d = lane.samples < spec_.batch ? batch_dim(tensor.shape(), spec_.batch) : -1;
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

std::unique_ptr<StepProgram::Lane> StepProgram::make_lane(int stage, int index, int count) {
  auto lane = std::make_unique<Lane>(packs_);
  lane->stage = stage;
  lane->first = spec_.batch * index / count;
  lane->samples = spec_.batch * (index + 1) / count - lane->first;
  lane->used.resize(slots_.size());
  lane->tensors.resize(slots_.size());
  const auto tensor = [&](int s) -> Tensor* {
    if (s < 0) return nullptr;
    lane->used[s] = true;
    return &lane->tensors[s];
  };
  for (const auto& op : ops_) {
    if (op->phase != Phase::step || op->stage != stage) continue;
    Lane::Operator made{op.get(), {}, {}};
    for (const int s : op->in_slots) made.in.push_back(tensor(s));
    for (const int s : op->out_slots) made.out.push_back(tensor(s));
    lane->ops.push_back(std::move(made));
  }
  return lane;
}

bool StepProgram::has_steps(int stage) const {
  return std::ranges::any_of(ops_, [&](const auto& op) { return op->phase == Phase::step && op->stage == stage; });
}

void StepProgram::prepare_lanes() {
  if (const int most = serial_here() ? 1 : threads(); most != threads_) {
    threads_ = 0;  // should there be too little memory, the next run tries again
    lanes_.clear();
    int count = lanes_for(most);
    int with_steps = 0;
    for (int s = 0; s < stages_; ++s) with_steps += has_steps(s) ? 1 : 0;
    const bool at_once = most > 1 || spec_.device.kind != DeviceKind::cpu;
    wave_ = count == 0 && at_once && with_steps > 1 && runs_pass("wavefront") && may_use_lanes();
    if (wave_) count = 1;
    for (int s = 0; s < stages_; ++s)
      for (int i = 0; i < count; ++i) lanes_.push_back(make_lane(s, i, count));
    lay_out_scratch();
    threads_ = most;
  }
  for (const auto& lane : lanes_) bind_lane(*lane);
}

void StepProgram::run_lane(Lane& lane, const Block& block, const RunContext& run) {
  const Products::Use products(lane.products);
  RunContext step = run;
  step.packs = packs_weights(spec_.steps) ? &lane.packs : nullptr;
  if (lane.first > 0) step.profiler = nullptr;  // one lane's time stands for all
  for (StepsAlike i(block.count, 1); i.more(); i.next()) {
    const int64_t t = timestep_at(block, *i);
    step.timestep = t;
    if (lane.timestep && !lane.timestep->is_dry()) *lane.timestep->data<int32_t>() = static_cast<int32_t>(t);
    for (const Lane::Moving& m : lane.moving)
      m.tensor->set_offset(m.slot->place(m.slot->kind == Kind::block ? t % ring_ : t) + m.before);
    for (const Lane::Operator& op : lane.ops) {
      const double start = step.profiler ? now_seconds() : 0;
      Call call(op.in, op.out, step);
      call.accumulate_mask = op.op->accumulate;
      try {
        run_kernel(*op.op, call);
      } catch (Error& e) {
        add_step_place(e, *op.op, t);
        throw;
      }
      if (step.profiler) step.profiler->record(op.op->profile_name, now_seconds() - start, 0, 0);
    }
    for (const RowSum& sum : row_sums_[lane.stage]) sum.add(t, lane.first, lane.samples);
  }
}

}  // namespace stepnet
