// Running a StepProgram: pointing it to the tensors of this run, and the steps themselves.
#include <algorithm>
#include <utility>

#include "core/compute/profiler.h"
#include "core/compute/vector_math.h"
#include "core/operator/anomaly.h"
#include "core/operator/dry_run.h"
#include "core/tensor/dry_device.h"
#include "core/tensor/half.h"
#include "core/tensor/random.h"
#include "recurrent/step/program.h"

namespace stepnet {
using Kind = StepSlot::Kind;

namespace {

// By the operator that sums, in place.
void add_on_device(const Tensor& from, Tensor& to) {
  OperatorDef def;
  def.set_type(op_with_role(Role::sum).type);
  for (const char* input : {"total", "step"}) def.add_input(input);
  def.add_output("total");
  static const BoundOp bound = bind_op(def, "sums over time", 0);
  BoundOp op = bound;
  op.device = to.device();
  const Tensor flat = from.reshaped(to.shape());
  const Tensor* in[] = {&to, &flat};
  Tensor* out[] = {&to};
  RunContext run;
  run_op(op, in, out, run);
}

}  // namespace

void add_elements(const Tensor& from, Tensor to) {
  if (to.is_dry()) return;
  if (to.device().kind != DeviceKind::cpu) return add_on_device(from, to);
  const auto add_halves = [&](auto zero) {
    const auto more = from.span<decltype(zero)>();
    const auto add = [&](auto sum) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + more[i];
    };
    to.dtype() == DType::float32 ? add(to.span<float>()) : add(to.span<decltype(zero)>());
  };
  if (with_half(from.dtype(), add_halves)) return;
  if (to.dtype() == DType::float32) {
    vec_axpy(1.0F, from.span<float>(), to.span<float>());
  } else {
    vec_axpy(1.0, from.span<double>(), to.span<double>());
  }
}

void StepProgram::rebind_link(const std::string& internal, const LinkTarget& link) {
  StepSlot& slot = *slots_[slot_of(internal)];
  slot.lead_to(link);
  slot.show(link.origin);
  if (slot.stacked.defined()) slot.stacked = slot.whole;
}

void StepProgram::rebind_slab(const std::string& name, const Tensor& whole, int64_t origin) {
  const int index = slot_of(name);
  if (index < 0 || slots_[index]->kind != Kind::slab) return;
  StepSlot& slot = *slots_[index];
  if (slot.name != name) return;  // what the step net makes is in another one's place
  slot.take_slab(whole, origin);
  if (slot.stacked.defined()) slot.stacked = slot.whole;
}

std::map<std::string, Tensor> StepProgram::own_slabs() const {
  std::map<std::string, Tensor> slabs;
  for (const auto& slot : slots_)
    if (slot->kind == Kind::slab && slot->in_segment && !slot->unused) slabs[slot->name] = slot->whole;
  return slabs;
}

std::string StepProgram::own_slab_of(const std::string& name) const {
  const int index = slot_of(name);
  if (index < 0 || slots_[index]->kind != Kind::slab || !slots_[index]->in_segment) return "";
  return slots_[index]->name;
}

void StepProgram::drop_bytes(size_t slot) {
  for (Tensor* t : {&slots_[slot]->tensor, &slots_[slot]->whole, &slots_[slot]->stacked}) t->drop_bytes();
  for (const auto& lane : lanes_) lane->tensors[slot].drop_bytes();
}

void StepProgram::let_go_of(const Tensor& linked) {
  for (size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s]->kind == Kind::link && slots_[s]->whole.shares_storage(linked)) drop_bytes(s);
}

void StepProgram::let_go_of_outside() {
  for (size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s]->kind == Kind::link || slots_[s]->kind == Kind::external) drop_bytes(s);
  for (Total& t : totals_) {
    t.tensor.drop_bytes();
    if (t.accumulated_by_kernel) drop_bytes(static_cast<size_t>(t.slot));
  }
  row_sums_.clear();
}

void StepProgram::bring_back(const std::string& internal, const LinkTarget& link) {
  const Tensor& before = slots_[slot_of(internal)]->whole;
  if (before.storage() || before.dtype() != link.whole.dtype() || !(before.shape() == link.whole.shape())) return;
  rebind_link(internal, link);
}

void StepProgram::let_go_of_segment() {
  for (size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s]->in_segment) drop_bytes(s);
}

void StepProgram::rebind_total(size_t gradient, const Tensor& total) {
  for (Total& t : totals_) {
    if (t.gradient != gradient) continue;
    t.tensor = total;
    if (t.accumulated_by_kernel) slots_[t.slot]->tensor = total;
  }
}

void StepSlot::show(int64_t t) {
  tensor = whole;
  tensor.set_view(row, place(t));
}

bool StepProgram::rebind_externals() {
  for (const auto& slot : slots_) {
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
  return products >= 4 && spec_.device.kind == DeviceKind::cpu;
}

void StepProgram::start_run(bool again) {
  if (!packs_weights(spec_.steps)) return;
  if (!again && packs_.is_its_turn()) return;
  constants_.clear();
  for (const auto& slot : slots_)
    if (slot->kind == Kind::external && slot->tensor.dtype() == DType::float32)
      constants_.push_back(std::as_const(slot->tensor).raw());
  packs_.start(constants_);
}

void StepProgram::run_step(int stage, int64_t t, RunContext& run) {
  run.timestep = t;
  for (const auto& slot : slots_) {
    if (slot->reshaped && slot->whole.defined()) slot->tensor.set_view(slot->row, slot->base);
    const int64_t row = slot->kind == Kind::block ? t % ring_ : t;
    if (slot->stride > 0) slot->tensor.set_offset(slot->place(row));
    if (slot->kind == Kind::timestep && slot->stride == 0 && !slot->tensor.is_dry())
      *slot->tensor.data<int32_t>() = static_cast<int32_t>(t);
  }
  RunContext step = run;
  step.packs = packs_weights(spec_.steps) ? &packs_ : nullptr;
  for (const auto& op : ops_) {
    if (op->phase != Phase::step || op->stage != stage) continue;
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

void StepProgram::add_step_place(Error& error, const Op& op, int64_t t) const {
  add_place(error, op);
  error.add("in", fmt::format("timestep {} of step net \"{}\"", t, net_name_));
}

void StepProgram::add_place(Error& error, const Op& op) const {
  BoundOp placed = op.op;
  placed.net_name = net_name_;
  add_op_context(error, placed);
}

void StepProgram::call(Op& op, RunContext& run) {
  if (op.plain_copy) {
    op.out[0]->copy_from(*op.in[0]);
    return;
  }
  if (op.nested) return call_nested(op, run);
  if (!op.kernel) {
    DryScope* dry = DryScope::now();
    if (dry) dry->counts_flops = !op.flops_known;
    run_op(op.op, op.in, op.out, run, op.accumulate);
    if (dry) dry->counts_flops = false;
    check_outputs(op);
    return;
  }
  const AnomalyCheck anomaly(op.op, op.in);
  Call call(op.in, op.out, run);
  call.accumulate_mask = op.accumulate;
  if (op.op.spec->random) {
    const DeviceOption& device = op.op.def.device_option();
    const uint64_t seed = device.has_random_seed() ? device.random_seed() : run.seed;
    call.random_key = random_key(seed, spec_.random_name, draw_name(op.op.def), run.iteration, run.timestep);
  }
  run_kernel(op, call);
  anomaly.after(op.out);
}

// Chains take nothing beside their outputs.
void StepProgram::run_kernel(const Op& op, Call& call) {
  if (!op.fused) return call_or_dry(op.op, *op.kernel, call);
  if (!DryScope::now()) op.kernel->run(op.op.args.get(), call);
}

// What a nested network made is copied to where the step has a place for it, and else taken as it is.
void StepProgram::call_nested(Op& op, const RunContext& run) {
  op.nested->run(op.in, run);
  for (size_t o = 0; o < op.out_slots.size(); ++o) {
    if (op.out_slots[o] < 0) continue;
    const Tensor made = op.nested->result(o);
    if (!made.defined()) continue;
    StepSlot& slot = *slots_[op.out_slots[o]];
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
void StepProgram::check_outputs(const Op& op) {
  for (const int index : op.out_slots) {
    if (index < 0) continue;
    StepSlot& slot = *slots_[index];
    if (!slot.whole.defined()) continue;
    if (slot.tensor.storage() == slot.whole.storage() && slot.tensor.size() == slot.row.size()) continue;
    const std::string made = slot.tensor.str();
    slot.show(0);  // a later run finds it in its place
    fail("\"{}\" is rows of {}, one timestep of which is {}{}, but the step net makes it {}", slot.name,
         slot.whole.str(), dtype_name(slot.whole.dtype()), slot.row.str(), made);
  }
}

void StepProgram::add_totals() {
  for (Total& total : totals_) {
    if (total.accumulated_by_kernel) continue;
    const Tensor& step = slots_[total.slot]->tensor;
    const bool wide = is_half(step.dtype()) && total.tensor.dtype() == DType::float32;
    require((wide || step.dtype() == total.tensor.dtype()) && step.size() == total.tensor.size(),
            "the gradient of one timestep, \"{}\", is {}, but the parameter is {}", slots_[total.slot]->name, step,
            total.tensor);
    add_elements(step, total.tensor);
  }
}

Tensor StepProgram::slab(const std::string& name) const {
  const int index = slot_of(name);
  if (index < 0 || slots_[index]->kind != Kind::slab) return {};
  const StepSlot& slot = *slots_[index];
  // Who reads it sees what the last operator of the step has made of it.
  return slot.reshaped ? slot.whole.reshaped(slot.made.prepend(slot.whole.dim(0))) : slot.whole;
}

std::map<std::string, TensorType> StepProgram::types() const {
  std::map<std::string, TensorType> types;
  for (const auto& [name, index] : slots_by_name_)
    if (slots_[index]->typed)
      types[name] = TensorType::of(slots_[index]->tensor.dtype(), slots_[index]->tensor.shape());
  return types;
}

std::map<std::string, Tensor> StepProgram::blobs(int64_t t) const {
  std::map<std::string, Tensor> blobs;
  for (const auto& [name, index] : slots_by_name_) {
    StepSlot slot = *slots_[index];
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
  for (const auto& slot : slots_)
    if (slot->kind == Kind::slab) bytes += static_cast<int64_t>(slot->whole.bytes());
  return bytes;
}

}  // namespace stepnet
