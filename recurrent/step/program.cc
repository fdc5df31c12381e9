// Running a step net: pointing it to the tensors of this run, the steps, lanes, blocks, stages, and the captured loop.
#include "recurrent/step/program.h"
#include "recurrent/step/fuse.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "core/compute/threads.h"
#include "core/net/liveness.h"
#include "core/operator/anomaly.h"
#include "core/operator/dry_run.h"
#include "core/operator/in_place.h"
#include "core/operator/observer.h"
#include "core/tensor/dry_device.h"
#include "recurrent/step/passes.h"
#include "stepnet/half.h"
#include "stepnet/profiler.h"
#include "stepnet/random.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

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

StepProgram::StepProgram(StepIr ir) : ir_(std::move(ir)), packs_(ir_.spec.packs) {
  bind_pointers();
  find_parts();
  if (kChecksPasses) check_pass(ir_, "layout");
  ir_.expected.clear();
  ir_.spec.net = nullptr;
  // Slots hold what a run needs; these would keep bytes that others have released.
  ir_.spec.links.clear();
  ir_.spec.slabs.clear();
  ir_.spec.totals.clear();
}

void StepProgram::bind_pointers() {
  for (const auto& op : ir_.ops) {
    op->profile_name = fmt::format("  {} (in {})", op->fused ? "fused" : op->op.def.type(),
                                   op->phase == Phase::step ? "steps" : "blocks");
    if (op->phase != Phase::step) bind_block(*op);
    for (const int s : op->in_slots) op->in.push_back(s < 0 ? nullptr : &ir_.slots[s]->tensor);
    for (const int s : op->out_slots) op->out.push_back(s < 0 ? nullptr : &ir_.slots[s]->tensor);
  }
}

// Operators in their order; a value that is added up after each timestep has its own place in that, too.
void StepProgram::find_parts() {
  std::vector<std::set<int>> slots(static_cast<size_t>(ir_.stages) * kPhases);
  parts_.resize(slots.size());
  for (const auto& op : ir_.ops) {
    const size_t index = part_index(op->phase, op->stage);
    parts_[index].ops.push_back(op.get());
    slots[index].insert(op->in_slots.begin(), op->in_slots.end());
    slots[index].insert(op->out_slots.begin(), op->out_slots.end());
  }
  for (const StepTotal& total : ir_.totals)
    if (!ir_.is_accumulator(total.slot))
      for (int stage = 0; stage < ir_.stages; ++stage) slots[part_index(Phase::step, stage)].insert(total.slot);
  for (size_t i = 0; i < slots.size(); ++i)
    for (const int s : slots[i])
      if (s >= 0) parts_[i].slots.push_back(ir_.slots[s].get());
}

void StepProgram::rebind_link(const std::string& internal, const LinkTarget& link) {
  StepSlot& slot = *ir_.slots[ir_.slot_of(internal)];
  slot.lead_to(link);
  slot.show(link.origin);
  if (slot.stacked.defined()) slot.stacked = slot.whole;
}

void StepProgram::rebind_slab(const std::string& name, const Tensor& whole, int64_t origin) {
  const int index = ir_.slot_of(name);
  if (index < 0 || ir_.slots[index]->kind != Kind::slab) return;
  StepSlot& slot = *ir_.slots[index];
  if (slot.name != name) return;  // what the step net makes is in another one's place
  slot.take_slab(whole, origin);
  if (slot.stacked.defined()) slot.stacked = slot.whole;
}

std::map<std::string, Tensor> StepProgram::own_slabs() const {
  std::map<std::string, Tensor> slabs;
  for (const auto& slot : ir_.slots)
    if (slot->kind == Kind::slab && slot->in_segment && !slot->unused) slabs[slot->name] = slot->whole;
  return slabs;
}

std::string StepProgram::own_slab_of(const std::string& name) const {
  const int index = ir_.slot_of(name);
  if (index < 0 || ir_.slots[index]->kind != Kind::slab || !ir_.slots[index]->in_segment) return "";
  return ir_.slots[index]->name;
}

void StepProgram::drop_bytes(size_t slot) {
  for (Tensor* t : {&ir_.slots[slot]->tensor, &ir_.slots[slot]->whole, &ir_.slots[slot]->stacked}) t->drop_bytes();
  for (const auto& lane : lanes_)
    if (Tensor* tensor = lane->find(static_cast<int>(slot))) tensor->drop_bytes();
}

void StepProgram::let_go_of(const std::set<const void*>& storages) {
  for (size_t s = 0; s < ir_.slots.size(); ++s)
    if (ir_.slots[s]->kind == Kind::link && storages.count(ir_.slots[s]->whole.storage().get()) > 0) drop_bytes(s);
}

void StepProgram::let_go_of_outside() {
  for (size_t s = 0; s < ir_.slots.size(); ++s)
    if (ir_.slots[s]->kind == Kind::link || ir_.slots[s]->kind == Kind::external) drop_bytes(s);
  for (StepTotal& t : ir_.totals) {
    t.tensor.drop_bytes();
    if (ir_.is_accumulator(t.slot)) drop_bytes(static_cast<size_t>(t.slot));
  }
  row_sums_.clear();
}

void StepProgram::bring_back(const std::string& internal, const LinkTarget& link) {
  const Tensor& before = ir_.slots[ir_.slot_of(internal)]->whole;
  if (before.storage() || before.dtype() != link.whole.dtype() || !(before.shape() == link.whole.shape())) return;
  rebind_link(internal, link);
}

void StepProgram::let_go_of_segment() {
  for (size_t s = 0; s < ir_.slots.size(); ++s)
    if (ir_.slots[s]->in_segment) drop_bytes(s);
}

void StepProgram::rebind_totals(const std::vector<Tensor>& totals) {
  for (StepTotal& t : ir_.totals) {
    t.tensor = totals.at(t.gradient);
    if (ir_.is_accumulator(t.slot)) ir_.slots[t.slot]->tensor = t.tensor;
  }
}

bool StepProgram::rebind_externals() {
  for (const auto& slot : ir_.slots) {
    if (slot->kind != Kind::external) continue;
    const Blob& blob = *slot->blob;
    if (!blob.is_tensor()) return false;
    const Tensor& now = blob.tensor();
    if (now.dtype() != slot->tensor.dtype() || !(now.shape() == slot->tensor.shape())) return false;
    slot->tensor = now;
  }
  return true;
}

// Packing a weight costs about as much as a few products with it.
bool StepProgram::packs_weights(int64_t products) const {
  return products >= 4 && ir_.spec.device.kind == DeviceKind::cpu;
}

void StepProgram::start_run(bool again) {
  if (!packs_weights(ir_.spec.steps)) return;
  if (!again && packs_.is_its_turn()) return;
  constants_.clear();
  for (const auto& slot : ir_.slots)
    if (slot->kind == Kind::external && (slot->tensor.dtype() == DType::float32 || is_half(slot->tensor.dtype())))
      constants_.push_back(std::as_const(slot->tensor).raw());
  packs_.start(constants_);
}

void StepProgram::run_step(int stage, int64_t t, RunContext& run) {
  run.timestep = t;
  const Part& steps = parts_[part_index(Phase::step, stage)];
  for (StepSlot* slot : steps.slots) {
    if (slot->reshaped && slot->whole.defined()) slot->tensor.set_view(slot->row, slot->base);
    const int64_t row = slot->kind == Kind::block ? t % ir_.ring : t;
    if (slot->stride > 0) slot->tensor.set_offset(slot->place(row));
    if (slot->kind == Kind::timestep && slot->stride == 0 && !slot->tensor.is_dry())
      *slot->tensor.data<int32_t>() = static_cast<int32_t>(t);
  }
  RunContext step = run;
  step.packs = packs_weights(ir_.spec.steps) ? &packs_ : nullptr;
  for (StepOp* op : steps.ops) {
    try {
      const double start = run.profiler ? now_seconds() : 0;
      call(*op, step);
      if (run.profiler) run.profiler->record(op->profile_name, now_seconds() - start, 0, 0);
    } catch (Error& e) {
      add_step_place(e, *op, t);
      throw;
    }
  }
  add_totals();
}

void StepProgram::add_step_place(Error& error, const StepOp& op, int64_t t) const {
  ir_.add_place(error, op);
  error.add("in", fmt::format("timestep {} of step net \"{}\"", t, ir_.net_name));
}

void StepProgram::call(StepOp& op, RunContext& run) {
  if (op.plain_copy) {
    op.out[0]->copy_from(*op.in[0]);
    return;
  }
  if (op.nested) return call_nested(op, run);
  if (!op.kernel) {
    DryScope* dry = DryScope::now();
    if (dry) dry->counts_flops = !op.flops_known;
    run_untyped(op, run);
    if (dry) dry->counts_flops = false;
    check_outputs(op);
    return;
  }
  std::optional<AnomalyCheck> anomaly;
  if (run.anomalies) anomaly.emplace(op.op, op.in, run);
  Call call(op.in, op.out, run);
  call.accumulate_mask = op.accumulate;
  if (op.op.spec->random) {
    const DeviceOption& device = op.op.def.device_option();
    const uint64_t seed = device.has_random_seed() ? device.random_seed() : run.seed;
    call.random_key = random_key(seed, ir_.spec.random_name, draw_name(op.op.def), run.iteration, run.timestep);
  }
  run_kernel(op, call);
  if (anomaly) anomaly->after(op.out);
}

// What may turn out to be another name of an input goes to a place of its own all the same.
void StepProgram::run_untyped(StepOp& op, RunContext& run) {
  if (!may_be_alias(*op.op.spec, 0) || op.accumulate != 0) return run_op(op.op, op.in, op.out, run, op.accumulate);
  Tensor made;
  Tensor* const outputs[] = {&made};
  run_op(op.op, op.in, outputs, run);
  op.out[0]->resize(made.dtype(), made.shape(), op.op.device);
  op.out[0]->copy_from(made);
}

// Chains take nothing beside their outputs.
void StepProgram::run_kernel(const StepOp& op, Call& call) {
  if (!op.fused) return call_or_dry(op.op, *op.kernel, call);
  if (!DryScope::now()) op.kernel->run(op.op.args.get(), call);
}

// What a nested network made is copied to where the step has a place for it, and else taken as it is.
void StepProgram::call_nested(StepOp& op, const RunContext& run) {
  op.nested->run(op.in, run);
  for (size_t o = 0; o < op.out_slots.size(); ++o) {
    if (op.out_slots[o] < 0) continue;
    const Tensor made = op.nested->result(o);
    if (!made.defined()) continue;
    StepSlot& slot = *ir_.slots[op.out_slots[o]];
    if ((slot.typed || slot.kind == Kind::link) &&
        (made.dtype() != slot.tensor.dtype() || made.size() != slot.tensor.size()))
      fail("\"{}\" must be {} in the step net, but {} makes it {}", slot.name, slot.tensor, op.op.def.type(), made);
    if (slot.whole.defined()) {
      slot.tensor.copy_from(made);
      if (slot.kind == Kind::link)
        count_recurrent({.copied = static_cast<int64_t>(made.bytes()), .initial = 0, .spread = 0});
    } else {
      slot.tensor = made;
    }
  }
}

// An output whose shape depends on data may have left the place that its slot has in another tensor.
void StepProgram::check_outputs(const StepOp& op) {
  for (const int index : op.out_slots) {
    if (index < 0) continue;
    StepSlot& slot = *ir_.slots[index];
    if (!slot.whole.defined()) continue;
    if (slot.tensor.storage() == slot.whole.storage() && slot.tensor.size() == slot.row.size()) continue;
    const std::string made = slot.tensor.str();
    slot.show(0);  // a later run finds it in its place
    fail("\"{}\" is rows of {}, one timestep of which is {}{}, but the step net makes it {}", slot.name,
         slot.whole.str(), dtype_name(slot.whole.dtype()), slot.row.str(), made);
  }
}

void StepProgram::add_totals() {
  for (StepTotal& total : ir_.totals) {
    if (ir_.is_accumulator(total.slot)) continue;
    const Tensor& step = ir_.slots[total.slot]->tensor;
    const bool wide = is_half(step.dtype()) && total.tensor.dtype() == DType::float32;
    require((wide || step.dtype() == total.tensor.dtype()) && step.size() == total.tensor.size(),
            "the gradient of one timestep, \"{}\", is {}, but the parameter is {}", ir_.slots[total.slot]->name, step,
            total.tensor);
    add_elements(step, total.tensor);
  }
}

Tensor StepProgram::slab(const std::string& name) const {
  const int index = ir_.slot_of(name);
  if (index < 0 || ir_.slots[index]->kind != Kind::slab) return {};
  const StepSlot& slot = *ir_.slots[index];
  // Who reads it sees what the last operator of the step has made of it.
  return slot.reshaped ? slot.whole.reshaped(slot.made.prepend(slot.whole.dim(0))) : slot.whole;
}

std::map<std::string, TensorType> StepProgram::types() const {
  std::map<std::string, TensorType> types;
  for (const auto& [name, index] : ir_.slots_by_name)
    if (ir_.slots[index]->typed) {
      const StepSlot& slot = *ir_.slots[index];
      types[name] = TensorType::of(slot.tensor.dtype(), slot.tensor.shape());
      if (slot.content.defined()) types[name].value = &slot.content;
    }
  return types;
}

std::map<std::string, Tensor> StepProgram::blobs(int64_t t) const {
  std::map<std::string, Tensor> blobs;
  for (const auto& [name, index] : ir_.slots_by_name) {
    StepSlot slot = *ir_.slots[index];
    if (slot.kind == Kind::timestep) {
      blobs[name] = Tensor::of<int32_t>({1}, {static_cast<int32_t>(t)});
    } else if (slot.kind == Kind::slab || (slot.kind == Kind::link && slot.cycle == 0)) {
      if (!slot.whole.storage() && slot.whole.bytes() > 0) continue;
      slot.show(t);
      blobs[name] = slot.reshaped && slot.typed ? slot.tensor.reshaped(slot.made) : slot.tensor;
    }
  }
  return blobs;
}

int64_t StepProgram::slab_bytes() const {
  int64_t bytes = 0;
  for (const auto& slot : ir_.slots)
    if (slot->kind == Kind::slab) bytes += static_cast<int64_t>(slot->whole.bytes());
  return bytes;
}

// --- Blocks of timesteps ---------------------------------------------------------------------------------------------

int StepProgram::block_operators() const {
  return static_cast<int>(
      std::count_if(ir_.ops.begin(), ir_.ops.end(), [](const auto& op) { return op->phase != Phase::step; }));
}

std::set<const void*> StepProgram::links_in_blocks() const {
  std::set<const void*> storages;
  for (const auto& op : ir_.ops) {
    if (op->phase == Phase::step) continue;
    for (const auto* slots : {&op->in_slots, &op->out_slots})
      for (const int s : *slots)
        if (s >= 0 && ir_.slots[s]->kind == Kind::link) storages.insert(ir_.slots[s]->whole.storage().get());
  }
  storages.erase(nullptr);
  return storages;
}

void StepProgram::bind_block(StepOp& op) {
  auto stacked = [&](int s) -> Tensor* {
    if (s < 0) return nullptr;
    StepSlot& slot = *ir_.slots[s];
    if (!ir_.varies(s) || ir_.is_accumulator(s)) return &slot.tensor;
    const bool writes = slot.kind == Kind::timestep && slot.stride == 0;
    slot.stacked = writes ? Tensor::empty(DType::int32, {std::max(ir_.spec.block, ir_.after_block)}) : slot.whole;
    return &slot.stacked;
  };
  for (const int s : op.in_slots) op.block_in.push_back(stacked(s));
  for (const int s : op.out_slots) op.block_out.push_back(stacked(s));
}

void StepProgram::run_block(Phase phase, int stage, const Block& block, RunContext& run) {
  const Part& runs = parts_[part_index(phase, stage)];
  if (runs.ops.empty()) return;
  for (StepSlot* slot : runs.slots) {
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
    const int64_t row = slot->kind == Kind::block ? block.first % ir_.ring : block.first;
    slot->stacked.set_view(slot->stack(block.count), slot->place(row));
  }
  RunContext in_block = run;
  const int64_t blocks = ir_.spec.steps / (phase == Phase::after ? ir_.after_block : ir_.spec.block);
  in_block.packs = packs_weights(blocks) ? &packs_ : nullptr;
  for (const StepOp* op : runs.ops) {
    try {
      const double start = run.profiler ? now_seconds() : 0;
      Call call(op->block_in, op->block_out, in_block);
      call.accumulate_mask = op->accumulate;
      run_kernel(*op, call);
      if (run.profiler) run.profiler->record(op->profile_name, now_seconds() - start, 0, 0);
    } catch (Error& e) {
      ir_.add_place(e, *op);
      e.add("in", fmt::format("timesteps {} to {} of step net \"{}\"", block.first, block.first + block.count - 1,
                              ir_.net_name));
      throw;
    }
  }
}

// --- Scratch by lanes ------------------------------------------------------------------------------------------------

// The shape of the lane's part; of the whole if there are no lanes.
Shape StepProgram::shape_in(const Lane* lane, int slot) const {
  const bool has_all = !lane || lane->samples == ir_.spec.batch;
  return has_all ? ir_.slots[slot]->tensor.shape() : lane_shape(slot, lane->samples);
}

// Of these slots, all of which the lane uses. A point is an operator, and the end of the step, when totals are added
// up.
std::vector<Lifetime> StepProgram::scratch_lifetimes(const std::vector<int>& slots, const Lane* lane) const {
  std::vector<Lifetime> lifetimes(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const int s = slots[i];
    lifetimes[i].bytes = byte_size(ir_.slots[s]->tensor.dtype(), shape_in(lane, s));
    for (const size_t op : ir_.users(s)) use_at(lifetimes[i], static_cast<int>(op));
    if (ir_.is_total(s)) use_at(lifetimes[i], static_cast<int>(ir_.ops.size()));
  }
  return lifetimes;
}

void StepProgram::lay_out_scratch() {
  const KnownUses known(ir_);
  std::vector<int> slots;
  for (size_t s = 0; s < ir_.slots.size(); ++s)
    if (ir_.slots[s]->laid_out) slots.push_back(static_cast<int>(s));
  for (const int s : slots) ir_.slots[s]->tensor.drop_bytes();
  std::vector<Lane*> lanes;
  for (const auto& lane : lanes_) lanes.push_back(lane.get());
  if (lanes.empty()) lanes.push_back(nullptr);
  std::vector<std::vector<int>> used;  // by lane
  std::vector<ArenaPlan> plans;
  int64_t bytes = 0;
  for (const Lane* lane : lanes) {
    const auto has = [&](int s) { return ir_.slots[s]->laid_out; };
    if (lane)
      std::ranges::copy_if(lane->slots, std::back_inserter(used.emplace_back()), has);
    else
      used.push_back(slots);
    bytes += plans.emplace_back(plan_arena(scratch_lifetimes(used.back(), lane))).bytes;
  }
  // Parts of a few bytes may take more than the whole does, because each is rounded up.
  if (bytes > bytes_apart(scratch_lifetimes(slots, nullptr))) {
    for (const int s : slots)
      ir_.slots[s]->tensor = Tensor::empty(ir_.slots[s]->tensor.dtype(), ir_.slots[s]->tensor.shape(), ir_.spec.device);
    return;
  }
  const Tensor arena = Tensor::empty(DType::uint8, {bytes}, ir_.spec.device);
  int64_t start = 0;
  for (size_t l = 0; l < lanes.size(); start += plans[l++].bytes) {
    for (size_t i = 0; i < used[l].size(); ++i) {
      const int s = used[l][i];
      Tensor& tensor = lanes[l] ? *lanes[l]->find(s) : ir_.slots[s]->tensor;
      tensor = Tensor::view(arena.storage(), static_cast<size_t>(start + plans[l].offsets[i]),
                            ir_.slots[s]->tensor.dtype(), shape_in(lanes[l], s));
    }
  }
  if (kChecksPasses)
    for (const Lane* lane : lanes) check_places(lane);
}

void StepProgram::check_places(const Lane* lane) const {
  std::map<int, ScratchPlace> places;
  for (size_t s = 0; s < ir_.slots.size(); ++s) {
    const Tensor* tensor = lane ? lane->find(static_cast<int>(s)) : &ir_.slots[s]->tensor;
    if (ir_.slots[s]->laid_out && tensor) places[static_cast<int>(s)] = {tensor->offset(), tensor->bytes()};
  }
  Schedule schedule = ir_.schedule();
  for (const StepTotal& total : ir_.totals)
    schedule.totals.push_back({total.slot, total.gradient, ir_.is_accumulator(total.slot)});
  for (int stage = 0; stage < ir_.stages; ++stage)
    if (!lane || lane->stage == stage) check_scratch(schedule, stage, places);
}

// --- Lanes -----------------------------------------------------------------------------------------------------------
//
// Lanes of a StepProgram: operators of one stage and samples that one thread takes through a block of timesteps.
//
// Where every operator of a timestep works on each sample by itself, each thread takes a part of the batch, without
// waiting for the others in any timestep. Where not, a lane may still have a stage's operators and the whole batch, so
// that threads work on different stages. Otherwise operators use threads inside.

static bool is_one_row(const Tensor& t) { return t.size() == last_dim(t); }

// What `samples` of the batch have in the slot; the whole if it does not hold samples.
Shape StepProgram::lane_shape(int slot, int64_t samples) const {
  const Shape& shape = ir_.slots[slot]->tensor.shape();
  if (!ir_.varies(slot) || ir_.slots[slot]->kind == Kind::timestep) return shape;
  return shape.with(batch_dim(shape, ir_.spec.batch), samples);
}

// Whether the operator gives the same for some samples alone as for these among all.
bool StepProgram::works_on_samples(const StepOp& op, int64_t samples) const {
  if (!op.kernel || op.plain_copy) return false;
  if (!op.fused) return works_on_samples(op.op, op.in_slots, op.out_slots, samples);
  // Elements are by themselves where all operands have samples, or are vectors for all.
  const auto is_vector = [&](int s) { return !ir_.varies(s) && is_one_row(ir_.slots[s]->tensor); };
  const auto fits = [&](int s) { return is_vector(s) || (ir_.varies(s) && samples_dim(s) >= 0); };
  if (std::ranges::all_of(op.in_slots, fits) &&
      std::ranges::all_of(op.out_slots, [&](int s) { return samples_dim(s) >= 0; }))
    return true;
  for (size_t p = 0; p < op.parts.size(); ++p)
    if (!works_on_samples(op.part_ops[p], op.parts[p].in, op.parts[p].out, samples)) return false;
  return true;
}

// The dimension of the slot that counts samples; -1 if it holds none.
int StepProgram::samples_dim(int slot) const {
  const StepSlot& s = *ir_.slots[slot];
  if (!s.typed || s.reshaped || ir_.is_total(slot) || s.kind == Kind::timestep) return -1;
  return batch_dim(s.tensor.shape(), ir_.spec.batch);
}

bool StepProgram::works_on_samples(const BoundOp& op, const std::vector<int>& in_slots,
                                   const std::vector<int>& out_slots, int64_t samples) const {
  const OpSpec& spec = *op.spec;
  if (spec.random || spec.side_effect || !spec.rowwise) return false;
  int dims = 0;
  const auto holds_samples = [&](int s) {
    const int d = samples_dim(s);
    dims = std::max(dims, d + 1);
    return d >= 0;
  };
  std::vector<TensorType> in(in_slots.size()), out(out_slots.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const int s = in_slots[i];
    in[i].absent = s < 0;
    if (s < 0) continue;
    if (ir_.varies(s) && ir_.slots[s]->kind != Kind::timestep && !holds_samples(s)) return false;
    in[i] = TensorType::of(ir_.slots[s]->tensor.dtype(), lane_shape(s, samples));
  }
  for (size_t o = 0; o < out.size(); ++o) {
    out[o].absent = out_slots[o] < 0;
    if (!out[o].absent && !holds_samples(out_slots[o])) return false;
  }
  try {
    infer_types(op, in, out);
  } catch (const Error&) {
    return false;  // a parameter has the size of the batch
  }
  for (size_t o = 0; o < out.size(); ++o)
    if (!out[o].absent && !(out[o].known && out[o].shape == lane_shape(out_slots[o], samples))) return false;
  return spec.rowwise(op.args.get(), ShapeCall(in, out)) >= dims;
}

size_t StepProgram::step_weight_bytes() const {
  std::set<int> externals;
  for (const auto& op : ir_.ops)
    for (const int s : op->in_slots)
      if (op->phase == Phase::step && s >= 0 && ir_.slots[s]->kind == Kind::external) externals.insert(s);
  size_t total = 0;
  for (const int s : externals) total += ir_.slots[s]->tensor.bytes();
  return total;
}

// Whether the operators of a timestep can work on other tensors than those of their slots.
bool StepProgram::may_use_lanes() const {
  const auto may = [&](const auto& op) {
    return op->phase != Phase::step || (op->kernel && !op->plain_copy && !op->op.spec->random &&
                                        std::ranges::none_of(op->out_slots, [&](int s) { return ir_.is_total(s); }));
  };
  return std::ranges::all_of(ir_.totals, [&](const StepTotal& t) { return ir_.is_accumulator(t.slot); }) &&
         std::ranges::all_of(ir_.ops, may);
}

// How many lanes there are in each stage for so many threads; 0 if operators use threads inside.
int StepProgram::lanes_for(int threads) const {
  if (!ir_.runs_pass("lanes") || ir_.spec.steps == 0 || ir_.spec.device.kind != DeviceKind::cpu) return 0;
  const auto lanes = static_cast<int>(std::min<int64_t>(threads, ir_.spec.batch / kLeastSamples));
  if (lanes < 2 || !may_use_lanes() || scans()) return 0;
  if (ir_.spec.batch / lanes < kManySamples && step_weight_bytes() > kMostWeights) return 0;
  const int64_t least = ir_.spec.batch / lanes, most = (ir_.spec.batch + lanes - 1) / lanes;
  const bool all = std::ranges::all_of(ir_.ops, [&](const auto& op) {
    return op->phase != Phase::step || (works_on_samples(*op, least) && works_on_samples(*op, most));
  });
  return all ? lanes : 0;
}

// Shows the lane its part of what this run reads and writes.
void StepProgram::bind_lane(Lane& lane) {
  lane.moving.clear();
  for (size_t i = 0; i < lane.slots.size(); ++i) {
    const int s = lane.slots[i];
    const StepSlot& slot = *ir_.slots[s];
    Tensor& tensor = lane.tensors[i];
    if (slot.kind == Kind::timestep && slot.stride == 0) {
      if (!tensor.defined()) tensor = Tensor::zeros(DType::int32, {1});
      lane.timestep = &tensor;
      continue;
    }
    if (slot.laid_out && !slot.tensor.storage()) continue;  // the lane has a part of its own
    tensor = slot.tensor;
    if (slot.unused || !slot.typed || ir_.is_total(s)) continue;
    const int d = lane.samples < ir_.spec.batch ? batch_dim(tensor.shape(), ir_.spec.batch) : -1;
    size_t before = 0;
    if (ir_.varies(s) && d >= 0) {
      before = slot.tensor.bytes() / static_cast<size_t>(ir_.spec.batch) * static_cast<size_t>(lane.first);
      const Shape shape = lane_shape(s, lane.samples);
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
  lane->first = ir_.spec.batch * index / count;
  lane->samples = ir_.spec.batch * (index + 1) / count - lane->first;
  const std::vector<StepOp*>& ops = parts_[part_index(Phase::step, stage)].ops;
  std::set<int> used;
  for (const StepOp* op : ops) {
    used.insert(op->in_slots.begin(), op->in_slots.end());
    used.insert(op->out_slots.begin(), op->out_slots.end());
  }
  used.erase(-1);
  lane->slots.assign(used.begin(), used.end());
  lane->tensors.resize(lane->slots.size());
  for (const StepOp* op : ops) {
    Lane::Operator made{op, {}, {}};
    for (const int s : op->in_slots) made.in.push_back(lane->find(s));
    for (const int s : op->out_slots) made.out.push_back(lane->find(s));
    lane->ops.push_back(std::move(made));
  }
  return lane;
}

const Tensor* StepProgram::Lane::find(int slot) const {
  const auto found = std::ranges::lower_bound(slots, slot);
  return found == slots.end() || *found != slot ? nullptr : &tensors[static_cast<size_t>(found - slots.begin())];
}

Tensor* StepProgram::Lane::find(int slot) { return const_cast<Tensor*>(std::as_const(*this).find(slot)); }

int StepProgram::threads_here() { return serial_here() ? 1 : threads(); }

bool StepProgram::has_wavefront(int threads, int lanes) const {
  int with_steps = 0;
  for (int s = 0; s < ir_.stages; ++s) with_steps += parts_[part_index(Phase::step, s)].ops.empty() ? 0 : 1;
  const bool at_once = threads > 1 || ir_.spec.device.kind != DeviceKind::cpu;
  return lanes == 0 && at_once && with_steps > 1 && ir_.runs_pass("wavefront") && may_use_lanes() && !scans();
}

void StepProgram::prepare_lanes() {
  if (const int most = threads_here(); most != threads_) {
    threads_ = 0;  // should there be too little memory, the next run tries again
    lanes_.clear();
    int count = lanes_for(most);
    wave_ = has_wavefront(most, count);
    if (wave_) count = 1;
    for (int s = 0; s < ir_.stages; ++s)
      for (int i = 0; i < count; ++i) lanes_.push_back(make_lane(s, i, count));
    lay_out_scratch();
    threads_ = most;
  }
  for (const auto& lane : lanes_) bind_lane(*lane);
}

void StepProgram::run_lane(Lane& lane, const Block& block, const RunContext& run) {
  const Products::Use products(lane.products);
  RunContext step = run;
  step.packs = packs_weights(ir_.spec.steps) ? &lane.packs : nullptr;
  if (lane.first > 0) step.profiler = nullptr;  // one lane's time stands for all
  for (StepsAlike i(block.count, 1); i.more(); i.next()) {
    const int64_t t = timestep_at(block, *i);
    step.timestep = t;
    if (lane.timestep && !lane.timestep->is_dry()) *lane.timestep->data<int32_t>() = static_cast<int32_t>(t);
    for (const Lane::Moving& m : lane.moving)
      m.tensor->set_offset(m.slot->place(m.slot->kind == Kind::block ? t % ir_.ring : t) + m.before);
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

// --- The order of blocks and stages ----------------------------------------------------------------------------------
//
// The order in which a StepProgram runs its blocks of timesteps and its stages, and which of them run at the same time.
//
// One after the other, or as a wavefront: in each turn all stages run at once, each on the block that the one before it
// had in the turn before. What can run for a whole block at once, before its timesteps and after them, uses all threads
// between the turns.

// The i-th timestep of the block, in the order of the run.
int64_t StepProgram::timestep_at(const Block& block, int64_t i) const {
  return ir_.spec.descending ? block.first + block.count - 1 - i : block.first + i;
}

// The i-th block of so many timesteps of the range, in the order of the run. Blocks are aligned to timestep 0.
StepProgram::Block StepProgram::block_at(int64_t size, int64_t i) const {
  const int64_t first = (ir_.spec.descending ? blocks_of(size) - 1 - i : i) * size;
  return {range_.first + first, std::min(size, range_.count - first)};
}

// A stage adds to the rows of those states that its operators use.
void StepProgram::prepare_row_sums(const std::vector<RowSum>& row_sums) {
  row_sums_.resize(static_cast<size_t>(ir_.stages));
  for (std::vector<RowSum>& sums : row_sums_) sums.clear();
  std::map<const void*, int> stages;
  if (ir_.stages > 1 && !row_sums.empty()) stages = ir_.stages_of_storages();
  for (const RowSum& sum : row_sums) {
    const auto stage = stages.find(sum.to.storage().get());
    row_sums_[stage == stages.end() ? 0 : stage->second].push_back(sum);
  }
}

// Whether every stage that has timesteps scans them (scan.cc).
bool StepProgram::scans() const {
  return std::ranges::all_of(ir_.ops, [](const auto& op) { return op->phase != Phase::step || op->scans; });
}

// What scans the stage's timesteps in this run: gradients from outside must be of the rows that it makes.
const StepOp* StepProgram::scan_of(int stage) const {
  const std::vector<StepOp*>& ops = parts_[part_index(Phase::step, stage)].ops;
  if (ops.size() != 1 || !ops[0]->scans || DryScope::now()) return nullptr;
  const auto is_made = [&](const RowSum& sum) {
    return std::ranges::any_of(ops[0]->out_slots, [&](int s) {
      const StepSlot& slot = *ir_.slots[s];
      return slot.kind == Kind::link && slot.whole.storage() == sum.to.storage() &&
             sum.to.size() == sum.to.dim(0) * slot.tensor.size() && slot.tensor.size() == ops[0]->out[0]->size();
    });
  };
  return std::ranges::all_of(row_sums_[stage], is_made) ? ops[0] : nullptr;
}

void StepProgram::run_scan(const StepOp& op, int stage, const Block& block, RunContext& run) {
  const double start = run.profiler ? now_seconds() : 0;
  const size_t operands = op.in.size() + op.out.size();
  scan_operands_.resize(operands * static_cast<size_t>(block.count));
  const auto place = [&](int index, size_t operand, auto bytes_of) {
    StepSlot& slot = *ir_.slots[index];
    const auto place_at = [&](int64_t i) {
      const int64_t t = timestep_at(block, i);
      return slot.place(slot.kind == Kind::block ? t % ir_.ring : t);
    };
    const size_t first = slot.stride > 0 ? place_at(0) : 0;
    if (slot.stride > 0) slot.tensor.set_offset(first);
    std::byte* const bytes = bytes_of(slot.tensor);
    for (int64_t i = 0; i < block.count; ++i, operand += operands)
      scan_operands_[operand] = slot.stride > 0 ? bytes + (place_at(i) - first) : bytes;
  };
  for (size_t i = 0; i < op.in.size(); ++i)
    place(op.in_slots[i], i, [](const Tensor& t) { return const_cast<std::byte*>(t.raw()); });  // is only read
  for (size_t o = 0; o < op.out.size(); ++o)
    place(op.out_slots[o], op.in.size() + o, [](Tensor& t) { return t.raw(); });
  ChainSteps steps{block.count, op.out[0]->size(), scan_operands_, {}};
  const std::vector<RowSum>& sums = row_sums_[stage];
  const auto add = [&](int64_t i, int64_t first, int64_t count) {
    for (const RowSum& sum : sums) sum.add_elements(timestep_at(block, i), first, count);
  };
  if (!sums.empty()) steps.made = std::ref(add);
  op.fused_steps(steps);
  if (run.profiler) run.profiler->record(op.profile_name, now_seconds() - start, 0, 0);
}

void StepProgram::run_steps(int stage, const Block& block, RunContext& run) {
  if (!lanes_.empty()) return run_lanes(stage, block, run);
  if (const StepOp* op = scan_of(stage)) return run_scan(*op, stage, block, run);
  const auto step = [&](int64_t i) {
    const int64_t t = timestep_at(block, i);
    run_step(stage, t, run);
    for (const RowSum& sum : row_sums_[stage]) sum.add(t, 0, ir_.spec.batch);
  };
  if (ir_.spec.device.kind != DeviceKind::cpu && !DryScope::now()) {
    const bool as_one = ir_.runs_pass("persistent") && !run.profiler;
    if (as_one)
      return show_loop(run, stage, backend(ir_.spec.device.kind).timesteps(ir_.spec.device, block.count, step));
    show_loop(run, stage, {.refusal = run.profiler ? "a profile is made" : "the pass \"persistent\" is left out"});
  }
  for (StepsAlike i(block.count, 1); i.more(); i.next()) step(*i);
}

void StepProgram::run_lanes(int stage, const Block& block, const RunContext& run) {
  const size_t count = lanes_.size() / static_cast<size_t>(ir_.stages);
  run_at_once(std::span<const std::unique_ptr<Lane>>(lanes_).subspan(static_cast<size_t>(stage) * count, count),
              [&](Lane& lane) { run_lane(lane, block, run); });
}

void StepProgram::run_in_turn(const Block& block, RunContext& run) {
  for (int stage = 0; stage < ir_.stages; ++stage) {
    run_block(Phase::before, stage, block, run);
    run_steps(stage, block, run);
  }
}

void StepProgram::run_after(RunContext& run, const Block& block) {
  for (int stage = 0; stage < ir_.stages; ++stage) run_block(Phase::after, stage, block, run);
}

// Stage s is s blocks behind the first.
void StepProgram::run_wave(int64_t turn, RunContext& run) {
  const int64_t first = std::max<int64_t>(turn - blocks_of(ir_.spec.block) + 1, 0);
  const int64_t end = std::min<int64_t>(turn + 1, ir_.stages);
  const auto block_of_stage = [&](int64_t stage) { return block_at(ir_.spec.block, turn - stage); };
  for (int64_t stage = first; stage < end; ++stage)
    run_block(Phase::before, static_cast<int>(stage), block_of_stage(stage), run);
  // Alone in the first turn and in the last, a stage has all threads for its products.
  if (end - first == 1) return run_lane(*lanes_[first], block_of_stage(first), run);
  if (ir_.spec.device.kind != DeviceKind::cpu && !DryScope::now()) {
    show_loop(run, -1, {.refusal = "its stages run at the same time, on streams of their own"});
    return backend(ir_.spec.device.kind).branches(ir_.spec.device, static_cast<int>(end - first), [&](int i) {
      run_lane(*lanes_[first + i], block_of_stage(first + i), run);
    });
  }
  run_at_once(std::span<const std::unique_ptr<Lane>>(lanes_).subspan(first, end - first),
              [&](Lane& lane) { run_lane(lane, block_of_stage(lane.stage), run); });
}

void StepProgram::run(RunContext& run, const std::vector<RowSum>& row_sums) {
  run_range(run, row_sums, {0, ir_.spec.steps}, true);
}

bool StepProgram::steps_are_alike() const {
  // Shapes that timesteps hand to the backward step net as numbers, or take from there, are those of each, unless they
  // are known to be the same.
  const auto holds_numbers = [](const auto& slot) {
    const DType type = slot->tensor.dtype();
    return slot->kind == StepSlot::Kind::slab && !slot->content.defined() &&
           (type == DType::int32 || type == DType::int64);
  };
  const auto takes_numbers = [](const auto& op) { return !op->kernel && !op->nested && !op->plain_copy; };
  return std::ranges::none_of(ir_.slots, holds_numbers) && std::ranges::none_of(ir_.ops, takes_numbers);
}

void StepProgram::run_range(RunContext& run, const std::vector<RowSum>& row_sums, const StepRange& range, bool again) {
  const CountsSteps counts(ir_.step_flops, range.count, !steps_are_alike());
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
  const int64_t blocks = blocks_of(ir_.spec.block);
  const int64_t behind = wave ? ir_.stages - 1 : 0;
  for (StepsAlike next(blocks + behind, ir_.stages + 1); next.more(); next.next()) {
    const int64_t turn = *next;
    if (wave) {
      run_wave(turn, run);
    } else {
      run_in_turn(block_at(ir_.spec.block, turn), run);
    }
    if (!ir_.after_last && turn >= behind) run_after(run, block_at(ir_.spec.block, turn - behind));
  }
  const int64_t after = ir_.after_last ? blocks_of(ir_.after_block) : 0;
  for (StepsAlike i(after, 1); i.more(); i.next()) run_after(run, block_at(ir_.after_block, *i));
}

// --- The loop on a GPU as one graph ----------------------------------------------------------------------------------
//
// The loop of a StepProgram on a GPU as one graph: captured once, replayed in every later run, so that the host queues
// one thing instead of some for each operator and timestep.
//
// A graph has all addresses in it. It is captured when a run has those of one before, which made everything that
// kernels make when they first run. There are some, as buffers may change places from run to run.

// The first that no graph can have, or null. Random operators are given a new key in every run, and kernels that are
// not chosen yet look at values.
const StepOp* StepProgram::op_without_graph() const {
  const auto found = std::ranges::find_if(ir_.ops, [](const auto& op) {
    const OpSpec& spec = *op->op.spec;
    return (!op->kernel && !op->plain_copy) || op->nested || spec.random || spec.side_effect;
  });
  return found == ir_.ops.end() ? nullptr : found->get();
}

// The values of a slot that is on the CPU, as a number among a kernel's inputs may be, or null. Kernels are given them
// as they are queued, so that a graph has them in it.
static const Tensor* host_values(const StepSlot& slot) {
  const Tensor& values = slot.whole.defined() ? slot.whole : slot.tensor;
  const bool holds = slot.kind != Kind::timestep && values.storage() && !values.is_dry();
  return holds && values.device().kind == DeviceKind::cpu && values.size() > 0 ? &values : nullptr;
}

bool StepProgram::may_capture(const RunContext& run) const {
  constexpr size_t kMostHostBytes = 1024;  // that are compared in every run
  if (ir_.spec.device.kind == DeviceKind::cpu || !ir_.runs_pass("graph") || graph_refused_) return false;
  const auto cannot_compare = [](const auto& slot) {
    const Tensor* values = host_values(*slot);
    return values && (values->dtype() == DType::string || values->bytes() > kMostHostBytes);
  };
  if (run.profiler || run.anomalies || DryScope::now() || op_without_graph()) return false;
  return std::ranges::none_of(ir_.slots, cannot_compare);
}

// Whatever a run's kernels are given.
void StepProgram::note_addresses() {
  const int64_t numbers[] = {range_.first, range_.count, backend(ir_.spec.device.kind).tf32_allowed()};
  addresses_.clear();
  for (const int64_t number : numbers) addresses_.push_back(reinterpret_cast<const void*>(number));
  for (const auto& slot : ir_.slots)
    for (const Tensor* t : {&std::as_const(slot->tensor), &std::as_const(slot->whole)}) {
      addresses_.push_back(t->storage() ? t->storage()->data() : nullptr);
      addresses_.push_back(
          reinterpret_cast<const void*>(t == &slot->tensor && slot->stride > 0 ? slot->base : t->offset()));
    }
  for (const auto& slot : ir_.slots)
    if (const Tensor* values = host_values(*slot))
      for (size_t i = 0; i < values->bytes(); i += sizeof(uintptr_t)) {
        uintptr_t word = 0;
        std::memcpy(&word, values->raw() + i, std::min(sizeof(word), values->bytes() - i));
        addresses_.push_back(reinterpret_cast<const void*>(word));
      }
  for (const StepTotal& total : ir_.totals) addresses_.push_back(std::as_const(total.tensor).raw());
  for (const std::vector<RowSum>& sums : row_sums_)
    for (const RowSum& sum : sums) {
      addresses_.push_back(std::as_const(sum.from).raw());
      addresses_.push_back(std::as_const(sum.to).raw());
    }
}

static std::string loop_name(const StepSpec& spec) {
  return fmt::format("{}loop of the step net \"{}\"", spec.backward ? "backward " : "", spec.random_name);
}

// Only the first line of what went wrong: the others say where, which is the loop.
static std::string refused_graph(const StepSpec& spec, const std::string& why) {
  return fmt::format(
      "the {} is not captured as a graph of the GPU, so in each run all operators of all timesteps are queued one by "
      "one: {}",
      loop_name(spec), why.substr(0, why.find('\n')));
}

// `stage`: -1 for all of them.
void StepProgram::show_loop(const RunContext& run, int stage, const TimestepsOutcome& outcome) const {
  if (!run.observer) return;
  std::string how = outcome.kernel;
  if (stage >= 0 && parts_[part_index(Phase::step, stage)].ops.empty()) {
    how = "no operator runs in timesteps";
  } else if (how.empty()) {
    const StepOp* op = op_without_graph();
    how = fmt::format("{}, and not one kernel: {}",
                      may_capture(run) ? "a graph of its operators"
                      : op ? fmt::format("operator by operator, as {} can be in no graph", op->op.def.type())
                           : "operator by operator",
                      outcome.refusal);
  }
  run.observer->looped(
      fmt::format("{}{}", loop_name(ir_.spec), ir_.stages > 1 && stage >= 0 ? fmt::format(", stage {}", stage) : ""),
      how);
}

void StepProgram::run_captured(RunContext& run) {
  constexpr size_t kMostGraphs = 4, kMostSeen = 8;
  const auto keep = [](auto& all, size_t most, auto added) {
    if (all.size() == most) all.erase(all.begin());
    all.push_back(std::move(added));
  };
  note_addresses();
  if (const auto at = std::ranges::find(captured_, addresses_, &Captured::addresses); at != captured_.end())
    return at->graph->replay();
  if (std::ranges::find(seen_addresses_, addresses_) == seen_addresses_.end()) {
    keep(seen_addresses_, kMostSeen, addresses_);
    return run_blocks(run);
  }
  std::unique_ptr<DeviceGraph> graph;
  std::string refusal;
  try {
    graph = backend(ir_.spec.device.kind).capture(ir_.spec.device, [&] { run_blocks(run); });
  } catch (const Error& e) {
    refusal = e.what();
  }
  if (!graph) {
    graph_refused_ = true;  // some kernel waits for the device: it says what is wrong, if anything is, as it runs
    run_blocks(run);
    if (run.warn) (*run.warn)(refused_graph(ir_.spec, refusal));
    return;
  }
  graph->replay();
  keep(captured_, kMostGraphs, Captured{addresses_, std::move(graph)});
}

}  // namespace stepnet
