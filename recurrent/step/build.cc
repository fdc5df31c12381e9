#include "recurrent/step/program.h"

#include <algorithm>
#include <numeric>

#include "core/operator/cast_kernels.h"
#include "core/operator/dry_run.h"

namespace stepnet {
namespace {

using Kind = StepSlot::Kind;

size_t row_bytes(const Tensor& whole) {
  return static_cast<size_t>(whole.shape().size_between(1, whole.rank())) * dtype_size(whole.dtype());
}

StepSlot link_slot(const std::string& name, const LinkTarget& link, int64_t steps) {
  const int64_t rows = link.segment_of > 0 ? link.segment_of : link.rows > 0 ? link.rows : link.whole.dim(0);
  const int64_t last = steps - 1 + link.offset + link.window;  // offset and window have 31 bits
  if (steps > 0 && last > rows)
    fail("the step blob \"{}\" is linked to rows {} to {} of a tensor {}{}, which has only {} rows", name, link.offset,
         last - 1, dtype_name(link.whole.dtype()), link.whole.shape().with(0, rows), rows);
  StepSlot slot;
  slot.name = name;
  slot.kind = Kind::link;
  slot.typed = true;
  slot.changes = link.changes;
  slot.read_only = link.read_only;
  slot.lead_to(link);
  // Made anew, so that its size is checked: without timesteps no number of rows bounds it.
  slot.row = Shape(link.whole.shape().with(0, link.window).dims());
  slot.show(0);
  return slot;
}

bool has_alias(const OpSpec& spec, int* in, int* out) {
  if (spec.aliases.empty()) return false;
  *in = spec.input_index(spec.aliases[0].in);
  *out = spec.output_index(spec.aliases[0].out);
  return true;
}

}  // namespace

void StepSlot::lead_to(const LinkTarget& link) {
  whole = link.whole;
  stride = row_bytes(whole);
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

StepProgram::StepProgram(StepProgramSpec spec)
    : spec_(std::move(spec)), net_name_(spec_.net->name()), packs_(spec_.packs) {
  for (const OperatorDef& op : spec_.net->op()) writes_.insert(op.output().begin(), op.output().end());
  keep_sources_of_aliases();
  add_given_slots();
  for (int i = 0; i < spec_.net->op_size(); ++i) add_op(i);
  if (kChecksPasses) check_pass("");
  overwrite_slabs();
  if (kChecksPasses) check_pass("overwrite");
  plan_totals();
  plan_blocks();
  bind_pointers();
  if (kChecksPasses) check_pass("layout");
  expected_.clear();
  spec_.net = nullptr;
  // Slots hold what a run needs; these would keep bytes that others have let go of.
  spec_.links.clear();
  spec_.slabs.clear();
  spec_.totals.clear();
}

int StepProgram::add_slot(StepSlot slot) {
  const int index = static_cast<int>(slots_.size());
  slots_by_name_[slot.name] = index;
  slots_.push_back(std::make_unique<StepSlot>(std::move(slot)));
  return index;
}

int StepProgram::slot_of(const std::string& name) const {
  count_name_lookup();
  const auto it = slots_by_name_.find(name);
  return it == slots_by_name_.end() ? -1 : it->second;
}

void StepProgram::add_given_slots() {
  for (const auto& [name, link] : spec_.links) add_slot(link_slot(name, link, spec_.steps));
  StepSlot time;
  time.name = spec_.timestep;
  time.kind = Kind::timestep;
  time.typed = true;
  if (slot_of(spec_.timestep) < 0) {
    show_timesteps(time);
    add_slot(std::move(time));
  }
  for (const auto& [name, whole] : spec_.slabs) {
    if (slot_of(name) >= 0) continue;
    StepSlot slot;
    slot.name = name;
    slot.kind = Kind::slab;
    slot.typed = true;
    slot.whole = whole;
    slot.stride = row_bytes(whole);
    slot.base = whole.offset();
    slot.in_segment = spec_.slab_steps > 0 && spec_.visible.count(name) == 0;
    slot.row = whole.shape().from(1);
    slot.show(0);
    add_slot(std::move(slot));
  }
  for (const auto& [name, type] : spec_.shapes) {
    if (slot_of(name) >= 0 || writes_.count(name) > 0) continue;
    StepSlot slot;
    slot.name = name;
    slot.typed = true;
    slot.shape_only = true;
    slot.tensor.set_type(type.dtype, type.shape);
    add_slot(std::move(slot));
    written_.insert(name);
  }
}

void StepProgram::show_timesteps(StepSlot& slot) const {
  slot.tensor = Tensor::zeros(DType::int32, {1});
  if (spec_.device.kind == DeviceKind::cpu) return;
  const int64_t rows = std::max<int64_t>(spec_.steps, 1);  // one without timesteps, too: operators see its shape
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  slot.whole = Tensor::empty(DType::int32, {rows}, spec_.device);
  slot.whole.copy_from(Tensor::of<int32_t>({rows}, all));
  slot.row = {1};
  slot.stride = sizeof(int32_t);
  slot.show(0);
}

int StepProgram::input_slot(const std::string& name) {
  if (name.empty()) return -1;
  if (const int known = slot_of(name); known >= 0) {
    const Kind kind = slots_[known]->kind;
    if (kind == Kind::scratch && written_.count(name) == 0)
      fail("the step net reads \"{}\" before an operator writes it", name);
    return known;
  }
  require(writes_.count(name) == 0, "the step net reads \"{}\" before an operator writes it", name);
  Blob* blob = spec_.workspace->find(name);
  if (!blob || !blob->is_tensor() || !blob->tensor().defined()) {
    std::vector<std::string> names = spec_.workspace->names();
    for (const auto& [known, slot] : slots_by_name_) names.push_back(known);
    throw Error(
        fmt::format("the step net reads \"{}\", but no operator in it writes that, no link shows it, and no blob "
                    "outside has that name.{}",
                    name, suggest(name, names)));
  }
  StepSlot slot;
  slot.name = name;
  slot.kind = Kind::external;
  slot.typed = true;
  slot.blob = blob;
  slot.tensor = blob->tensor();
  return add_slot(std::move(slot));
}

int StepProgram::output_slot(const std::string& name) {
  if (name.empty()) return -1;
  written_.insert(name);
  if (const int known = slot_of(name); known >= 0) {
    const StepSlot& slot = *slots_[known];
    require(slot.kind != Kind::external && slot.kind != Kind::timestep && !slot.read_only,
            "the step net writes \"{}\", which it has only to read{}", name,
            slot.name == name ? "" : fmt::format(" because it is another name of \"{}\"", slot.name));
    return known;
  }
  StepSlot slot;
  slot.name = name;
  slot.kind = spec_.keep_all || spec_.keep.count(name) > 0 ? Kind::slab : Kind::scratch;
  return add_slot(std::move(slot));
}

// A value that is kept under another name is kept under its own, and is then one slab.
void StepProgram::keep_sources_of_aliases() {
  for (int i = spec_.net->op_size() - 1; i >= 0; --i) {
    const OperatorDef& op = spec_.net->op(i);
    const OpSpec* schema = find_op(op.type());
    int in = 0, out = 0;
    if (!schema || !has_alias(*schema, &in, &out) || in >= op.input_size() || out >= op.output_size()) continue;
    if (writes_.count(op.input(in)) == 0) continue;
    for (std::set<std::string>* names : {&spec_.keep, &spec_.visible})
      if (names->count(op.output(out)) > 0) names->insert(op.input(in));
  }
}

// An alias makes its output's name another name of its input's slot, whatever it was before, unless the output has a
// place of its own.
bool StepProgram::share_slot(const Op& op) {
  int in = 0, out = 0;
  if (!has_alias(*op.op.spec, &in, &out)) return false;
  const std::string& name = op.op.def.output(out);
  const int source = op.in_slots[in];
  const int known = slot_of(name);
  const Kind kind = known >= 0 ? slots_[known]->kind : Kind::scratch;
  if (name.empty() || source < 0) return false;
  if (kind != Kind::scratch && kind != Kind::slab && slots_[known]->name == name) return false;
  if (spec_.keep.count(name) > 0 && slots_[source]->kind != Kind::slab) return false;
  slots_by_name_[name] = source;
  written_.insert(name);
  return true;
}

void StepProgram::add_op(int index) {
  auto made = std::make_unique<Op>();
  const OperatorDef& def = spec_.net->op(index);
  const bool says = spec_.device.kind != DeviceKind::cpu && def.device_option().has_device_type();
  made->op = bind_op(def, net_name_, index, says ? device_of(def, *spec_.net) : spec_.device);
  made->op.net_name = spec_.random_name;
  if (kChecksPasses) made->meaning = meaning_of(made->op);
  try {
    if (made->op.spec->blob_kernel && spec_.make_inner) {
      if (!nested_blobs_) nested_blobs_ = std::make_unique<Workspace>(spec_.workspace);
      made->nested = spec_.make_inner(made->op, *nested_blobs_);
    }
    require(!made->op.spec->blob_kernel || made->nested, "{} works on blobs and cannot stand in a step net",
            made->op.def.type());
    for (const std::string& name : made->op.def.input()) made->in_slots.push_back(input_slot(name));
    if (share_slot(*made)) return;
    int in = 0, out = 0;
    made->plain_copy = has_alias(*made->op.spec, &in, &out);
    for (const std::string& name : made->op.def.output()) made->out_slots.push_back(output_slot(name));
    infer(*made);
  } catch (Error& e) {
    add_place(e, *made);
    throw;
  }
  ops_.push_back(std::move(made));
}

void StepProgram::infer(Op& op) {
  std::vector<TensorType> in(op.in_slots.size()), out(op.out_slots.size());
  bool known = true;
  for (size_t i = 0; i < in.size(); ++i) {
    if (op.in_slots[i] < 0) {
      in[i].absent = true;
      continue;
    }
    const StepSlot& slot = *slots_[op.in_slots[i]];
    if (slot.typed) in[i] = TensorType::of(slot.tensor.dtype(), slot.tensor.shape());
    known = known && slot.typed;
  }
  for (size_t o = 0; o < out.size(); ++o) out[o].absent = op.out_slots[o] < 0;
  infer_types(op.op, in, out);
  if (op.nested) op.nested->infer(in, out);
  for (size_t o = 0; o < out.size(); ++o) {
    if (out[o].absent) continue;
    known = known && out[o].known;
    if (out[o].known) {
      fit_output(op.out_slots[o], out[o]);
    } else {
      forget_shape(*slots_[op.out_slots[o]]);
    }
  }
  op.flops_known = known && !op.nested;
  if (op.flops_known) step_flops_ += op_flops(op.op, in, out);
  const Role role = op.op.spec->role;
  if ((role == Role::copy || role == Role::alias) && slots_[op.out_slots[0]]->kind == Kind::link) {
    const auto bytes = static_cast<int64_t>(slots_[op.out_slots[0]]->tensor.bytes());
    (op.op.def.name() == kSpreadName ? copied_.spread : copied_.copied) += bytes;
  }
  if (known && !op.plain_copy && !op.nested) op.kernel = &pick_kernel(op.op, in, out);
}

// The operator's output has a shape that depends on data.
void StepProgram::forget_shape(StepSlot& slot) const {
  if (slot.kind == Kind::link) {  // the size is checked in every step
    slot.reshaped = true;
    slot.typed = false;
    return;
  }
  if (slot.kind == Kind::slab && spec_.keep.count(slot.name) == 0) {
    slot.kind = Kind::scratch;
    slot.stride = 0;
    slot.tensor = slot.whole = Tensor();
  }
  if (slot.kind == Kind::slab)
    throw Error(fmt::format("the shape of \"{}\" depends on data, but the backward step net needs its value of every "
                            "timestep",
                            slot.name),
                "give the shape by an argument, or name the blob in \"recompute\"");
  slot.reshaped = slot.reshaped || slot.typed;  // by an operator that wrote it before
  slot.typed = false;
}

// Gives the slot its tensor, or checks that the operator writes what the slot can hold.
void StepProgram::fit_output(int index, const TensorType& type) {
  StepSlot& slot = *slots_[index];
  slot.made = type.shape;
  if (slot.typed || slot.kind == Kind::link) {
    slot.typed = true;
    const bool fits = type.dtype == slot.tensor.dtype() && type.shape.size() == slot.tensor.size();
    if (slot.kind == Kind::link)
      require(fits, "\"{}\" is linked to rows of {}, one timestep of which is {}{}, but the step net makes it {}",
              slot.name, slot.whole, dtype_name(slot.tensor.dtype()), slot.tensor.shape(), type);
    require(fits, "the step net writes \"{}\" as {} and later as {}", slot.name, slot.tensor, type);
    // The elements stay where they are if only the shape differs (a Reshape in place, [1, B, D] against [B, D]).
    slot.reshaped = slot.reshaped || !(type.shape == slot.tensor.shape());
    slot.tensor.set_view(type.shape, slot.tensor.offset());
    return;
  }
  slot.typed = true;
  if (slot.kind == Kind::slab) {
    slot.in_segment = spec_.slab_steps > 0 && spec_.visible.count(slot.name) == 0;
    slot.whole =
        Tensor::empty(type.dtype, type.shape.prepend(slot.in_segment ? spec_.slab_steps : spec_.steps), spec_.device);
    slot.stride = row_bytes(slot.whole);
    slot.row = type.shape;
    slot.show(0);
    return;
  }
  slot.tensor.set_type(type.dtype, type.shape);  // bytes come when it is known that no kernel adds to a total instead
}

// A value that is added up over time is written straight into its total if one kernel that can add writes it, and
// nobody else sees it.
void StepProgram::plan_totals() {
  const KnownUses known(*this);
  std::map<int, int> terms;  // by slot: totals that it goes to
  for (const auto& sum : spec_.totals) ++terms[slot_of(sum.name)];
  for (const auto& [name, tensor, gradient] : spec_.totals) {
    Total total{gradient, slot_of(name), tensor, false};
    require(total.slot >= 0, "the backward step net has no blob \"{}\", which is to be a parameter's gradient", name);
    StepSlot& slot = *slots_[total.slot];
    slot.total = true;
    const bool wide = slot.typed && is_half(slot.tensor.dtype()) && tensor.dtype() == DType::float32;
    require(!slot.typed || (slot.tensor.size() == tensor.size() && (wide || slot.tensor.dtype() == tensor.dtype())),
            "the gradient of one timestep, \"{}\", is {}, but the parameter is {}", name, slot.tensor, tensor);
    const std::vector<size_t>& by = writers(total.slot);
    Op* const writer = by.empty() ? nullptr : ops_[by.back()].get();
    const size_t output = writer ? output_of(*writer, total.slot) : 0;
    const bool shared = terms.at(total.slot) > 1;
    // A kernel on casts adds to a float32 total as it is.
    const bool adds = writer && writer->kernel && (!wide || (is_on_casts(*writer->kernel) && kernels_fit(*writer)));
    if (adds && uses_of(total.slot) == 1 && !shared && slot.kind == Kind::scratch &&
        writer->op.spec->output_spec(static_cast<int>(output))->accumulates) {
      writer->accumulate |= 1U << output;
      slot.grows = total.accumulated_by_kernel = true;
    }
    totals_.push_back(total);
  }
}

void StepProgram::bind_pointers() {
  for (const Total& total : totals_)
    if (total.accumulated_by_kernel) slots_[total.slot]->tensor = total.tensor;
  lay_out_blocks();
  for (const auto& op : ops_) {
    op->profile_name = fmt::format("  {} (in {})", op->fused ? "fused" : op->op.def.type(),
                                   op->phase == Phase::step ? "steps" : "blocks");
    if (op->phase != Phase::step) bind_block(*op);
    if (!kernels_fit(*op)) op->kernel = nullptr;
    for (const int s : op->in_slots) op->in.push_back(s < 0 ? nullptr : &slots_[s]->tensor);
    for (const int s : op->out_slots) op->out.push_back(s < 0 ? nullptr : &slots_[s]->tensor);
  }
  allocate_scratch();
}

// A kernel that was chosen once relies on shapes that never change.
bool StepProgram::kernels_fit(const Op& op) const {
  auto steady = [&](int s) { return s < 0 || !slots_[s]->reshaped; };
  return std::all_of(op.in_slots.begin(), op.in_slots.end(), steady) &&
         std::all_of(op.out_slots.begin(), op.out_slots.end(), steady);
}

}  // namespace stepnet
