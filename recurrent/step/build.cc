#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"

#include <algorithm>
#include <numeric>

#include "core/net/dataflow.h"
#include "core/operator/cast_kernels.h"
#include "core/operator/dry_run.h"
#include "core/operator/in_place.h"

namespace stepnet {
namespace {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

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

// The numbers that a device gets are in no tensor of the host, which an estimate would count as the device's.
static void show_timesteps(const StepIr& ir, StepSlot& slot) {
  if (ir.spec.device.kind == DeviceKind::cpu) {
    slot.tensor = Tensor::zeros(DType::int32, {1});
    return;
  }
  const int64_t rows = std::max<int64_t>(ir.spec.steps, 1);  // one without timesteps, too: operators see its shape
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  slot.whole = Tensor::empty(DType::int32, {rows}, ir.spec.device);
  const auto host = std::make_shared<Storage>(nullptr, all.data(), all.size() * sizeof(int32_t));
  slot.whole.copy_from(Tensor::view(host, 0, DType::int32, {rows}));
  slot.row = {1};
  slot.stride = sizeof(int32_t);
  slot.show(0);
}

static void add_given_slots(StepIr& ir) {
  for (const auto& [name, link] : ir.spec.links) ir.add_slot(link_slot(name, link, ir.spec.steps));
  StepSlot time;
  time.name = ir.spec.timestep;
  time.kind = Kind::timestep;
  time.typed = true;
  if (ir.slot_of(ir.spec.timestep) < 0) {
    show_timesteps(ir, time);
    ir.add_slot(std::move(time));
  }
  for (const auto& [name, whole] : ir.spec.slabs) {
    if (ir.slot_of(name) >= 0) continue;
    StepSlot slot;
    slot.name = name;
    slot.kind = Kind::slab;
    slot.typed = true;
    if (const auto it = ir.spec.contents.find(name); it != ir.spec.contents.end()) slot.content = it->second;
    slot.whole = whole;
    slot.stride = slot.row_bytes();
    slot.base = whole.offset();
    slot.in_segment = ir.spec.slab_steps > 0 && ir.spec.visible.count(name) == 0;
    slot.row = whole.shape().from(1);
    slot.show(0);
    ir.add_slot(std::move(slot));
  }
  for (const auto& [name, type] : ir.spec.shapes) {
    if (ir.slot_of(name) >= 0 || ir.writes.count(name) > 0) continue;
    StepSlot slot;
    slot.name = name;
    slot.typed = true;
    slot.shape_only = true;
    slot.tensor.set_type(type.dtype, type.shape);
    ir.add_slot(std::move(slot));
    ir.written.insert(name);
  }
}

// A forward value whose shape depends on data; `what`: "its value of".
[[noreturn]] static void refuse_shape(const std::string& name, const char* what) {
  throw Error(
      fmt::format("the shape of \"{}\" depends on data, but the backward step net needs {} every timestep", name, what),
      "give the shape by an argument, or name the blob in \"recompute\"");
}

static int input_slot(StepIr& ir, const std::string& name) {
  if (name.empty()) return -1;
  if (const int known = ir.slot_of(name); known >= 0) {
    const Kind kind = ir.slots[known]->kind;
    if (kind == Kind::scratch && ir.written.count(name) == 0)
      fail("the step net reads \"{}\" before an operator writes it", name);
    return known;
  }
  require(ir.writes.count(name) == 0, "the step net reads \"{}\" before an operator writes it", name);
  if (ir.spec.untyped.count(name) > 0) refuse_shape(name, "its shape in");
  Blob* blob = ir.spec.workspace->find(name);
  if (!blob || !blob->is_tensor() || !blob->tensor().defined()) {
    std::vector<std::string> names = ir.spec.workspace->names();
    for (const auto& [known, slot] : ir.slots_by_name) names.push_back(known);
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
  return ir.add_slot(std::move(slot));
}

static int output_slot(StepIr& ir, const std::string& name) {
  if (name.empty()) return -1;
  ir.written.insert(name);
  if (const int known = ir.slot_of(name); known >= 0) {
    const StepSlot& slot = *ir.slots[known];
    require(slot.kind != Kind::external && slot.kind != Kind::timestep && !slot.read_only,
            "the step net writes \"{}\", which it has only to read{}", name,
            slot.name == name ? "" : fmt::format(" because it is another name of \"{}\"", slot.name));
    return known;
  }
  StepSlot slot;
  slot.name = name;
  slot.kind = ir.spec.keep_all || ir.spec.keep.count(name) > 0 ? Kind::slab : Kind::scratch;
  return ir.add_slot(std::move(slot));
}

// A value that is kept under another name is kept under its own, and is then one slab.
static void keep_sources_of_aliases(StepIr& ir) {
  for (int i = ir.spec.net->op_size() - 1; i >= 0; --i) {
    const OperatorDef& op = ir.spec.net->op(i);
    const OpSpec* schema = find_op(op.type());
    int in = 0, out = 0;
    if (!schema || !has_alias(*schema, &in, &out) || in >= op.input_size() || out >= op.output_size()) continue;
    if (ir.writes.count(op.input(in)) == 0) continue;
    for (std::set<std::string>* names : {&ir.spec.keep, &ir.spec.visible})
      if (names->count(op.output(out)) > 0) names->insert(op.input(in));
  }
}

// An alias makes its output's name another name of its input's slot, whatever it was before, unless the output has a
// place of its own.
static bool share_slot(StepIr& ir, const StepOp& op) {
  int in = 0, out = 0;
  if (!has_alias(*op.op.spec, &in, &out)) return false;
  const std::string& name = op.op.def.output(out);
  const int source = op.in_slots[in];
  const int known = ir.slot_of(name);
  const Kind kind = known >= 0 ? ir.slots[known]->kind : Kind::scratch;
  if (name.empty() || source < 0) return false;
  if (kind != Kind::scratch && kind != Kind::slab && ir.slots[known]->name == name) return false;
  if (ir.spec.keep.count(name) > 0 && ir.slots[source]->kind != Kind::slab) return false;
  ir.slots_by_name[name] = source;
  ir.written.insert(name);
  return true;
}

static void count_copied(StepIr& ir, const StepOp& op) {
  const Role role = op.op.spec->role;
  if ((role != Role::copy && role != Role::alias) || ir.slots[op.out_slots[0]]->kind != Kind::link) return;
  const auto bytes = static_cast<int64_t>(ir.slots[op.out_slots[0]]->tensor.bytes());
  (op.op.def.name() == kSpreadName ? ir.copied.spread : ir.copied.copied) += bytes;
}

// Lets what has been written to a scratch buffer so far be written to the linked rows that have the name, which nobody
// has used yet. Returns whether it could.
static bool write_to_link(StepIr& ir, int scratch, const std::string& name) {
  const int link = ir.slot_of(name);
  if (link < 0) return false;
  const StepSlot &from = *ir.slots[scratch], &to = *ir.slots[link];
  const bool fits = to.tensor.dtype() == from.tensor.dtype() && to.tensor.shape() == from.tensor.shape();
  if (from.kind != Kind::scratch || from.reshaped || to.kind != Kind::link || to.name != name || to.read_only || !fits)
    return false;
  if (std::ranges::any_of(ir.ops, [&](const auto& op) { return op->reads(link) || op->writes(link); })) return false;
  ir.slots[link]->made = from.made;
  for (const auto& op : ir.ops) {
    std::ranges::replace(op->in_slots, scratch, link);
    if (!op->writes(scratch)) continue;
    std::ranges::replace(op->out_slots, scratch, link);
    count_copied(ir, *op);
  }
  for (auto& [known, slot] : ir.slots_by_name)
    if (slot == scratch) slot = link;
  ir.slots[scratch]->unused = true;
  ir.written.insert(name);
  return true;
}

// An operator that gives a value the shape that it has. Returns true if none is needed; else it may become a copy.
static bool is_settled(StepIr& ir, StepOp& op) {
  const int source = aliased_input(*op.op.spec, 0);
  const int in = op.in_slots[source], like = op.in_slots[shaped_like(*op.op.spec, 0)];
  if (in < 0 || like < 0) return false;
  const StepSlot &from = *ir.slots[in], &shape = *ir.slots[like];
  if (!from.typed || !shape.typed || from.tensor.dtype() != shape.tensor.dtype()) return false;
  if (!(from.tensor.shape() == shape.tensor.shape())) return false;
  if (share_slot(ir, op) || write_to_link(ir, in, op.op.def.output(0))) return true;
  OperatorDef copy;
  copy.set_type(op_with_role(Role::copy).type);
  copy.set_name(kSpreadName);
  copy.add_input(op.op.def.input(source));
  copy.add_output(op.op.def.output(0));
  op.op = bind_op(copy, ir.net_name, op.op.index, op.op.device);
  op.op.net_name = ir.spec.random_name;
  if (kChecksPasses) op.meaning = meaning_of(op.op);
  op.in_slots = {in};
  return false;
}

// The operator's output has a shape that depends on data.
static void forget_shape(const StepIr& ir, StepSlot& slot) {
  if (slot.kind == Kind::link) {  // the size is checked in every step
    slot.reshaped = true;
    slot.typed = false;
    return;
  }
  if (slot.kind == Kind::slab && ir.spec.keep.count(slot.name) == 0) {
    slot.kind = Kind::scratch;
    slot.stride = 0;
    slot.tensor = slot.whole = Tensor();
  }
  if (slot.kind == Kind::slab) refuse_shape(slot.name, "its value of");
  slot.reshaped = slot.reshaped || slot.typed;  // by an operator that wrote it before
  slot.typed = false;
}

// Gives the slot its tensor, or checks that the operator writes what the slot can hold.
static void fit_output(StepIr& ir, int index, const TensorType& type) {
  StepSlot& slot = *ir.slots[index];
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
    slot.in_segment = ir.spec.slab_steps > 0 && ir.spec.visible.count(slot.name) == 0;
    slot.whole = Tensor::empty(type.dtype, type.shape.prepend(slot.in_segment ? ir.spec.slab_steps : ir.spec.steps),
                               ir.spec.device);
    slot.stride = slot.row_bytes();
    slot.row = type.shape;
    slot.show(0);
    return;
  }
  slot.tensor.set_type(type.dtype, type.shape);  // bytes come when it is known that no kernel adds to a total instead
}

// Whole numbers that follow from shapes alone, such as an old shape, are known before the first step. `types`: those of
// the inputs, before an output in place has another shape.
static void know_contents(StepIr& ir, const StepOp& op, const std::vector<TensorType>& types) {
  for (const int s : op.out_slots)
    if (s >= 0) ir.slots[s]->content = {};
  if (!op.op.spec->known_outputs) return;
  std::vector<Tensor> inputs(types.size());
  std::vector<const Tensor*> in(types.size());
  std::vector<Tensor*> out(op.out_slots.size());
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].absent) continue;
    if (!types[i].known) return;
    inputs[i].set_type(types[i].dtype, types[i].shape);
    in[i] = &inputs[i];
  }
  bool any = false;
  for (size_t o = 0; o < out.size(); ++o) {
    if (op.out_slots[o] < 0) continue;
    StepSlot& slot = *ir.slots[op.out_slots[o]];
    const DType type = slot.tensor.dtype();
    if (!slot.typed || (type != DType::int32 && type != DType::int64)) continue;
    slot.content = Tensor::empty(type, slot.tensor.shape());
    out[o] = &slot.content;
    any = true;
  }
  RunContext run;
  Call call(in, out, run);
  if (any) op.op.spec->known_outputs(op.op.args.get(), call);
}

static void infer(StepIr& ir, StepOp& op) {
  std::vector<TensorType> in(op.in_slots.size()), out(op.out_slots.size());
  bool known = true;
  for (size_t i = 0; i < in.size(); ++i) {
    if (op.in_slots[i] < 0) {
      in[i].absent = true;
      continue;
    }
    const StepSlot& slot = *ir.slots[op.in_slots[i]];
    if (slot.typed) in[i] = TensorType::of(slot.tensor.dtype(), slot.tensor.shape());
    if (slot.content.defined()) in[i].value = &slot.content;
    known = known && slot.typed;
  }
  for (size_t o = 0; o < out.size(); ++o) out[o].absent = op.out_slots[o] < 0;
  infer_types(op.op, in, out);
  if (op.nested) op.nested->infer(in, out);
  for (size_t o = 0; o < out.size(); ++o) {
    if (out[o].absent) continue;
    known = known && out[o].known;
    if (out[o].known) {
      fit_output(ir, op.out_slots[o], out[o]);
    } else {
      forget_shape(ir, *ir.slots[op.out_slots[o]]);
    }
  }
  know_contents(ir, op, in);
  op.flops_known = known && !op.nested;
  if (op.flops_known) ir.step_flops += op_flops(op.op, in, out);
  count_copied(ir, op);
  if (known && !op.plain_copy && !op.nested) op.kernel = &pick_kernel(op.op, in, out);
}

static void add_op(StepIr& ir, int index) {
  auto made = std::make_unique<StepOp>();
  const OperatorDef& def = ir.spec.net->op(index);
  const bool says = ir.spec.device.kind != DeviceKind::cpu && def.device_option().has_device_type();
  made->op = bind_op(def, ir.net_name, index, says ? device_of(def, *ir.spec.net) : ir.spec.device);
  made->op.net_name = ir.spec.random_name;
  if (kChecksPasses) made->meaning = meaning_of(made->op);
  try {
    if (made->op.spec->blob_kernel && ir.spec.make_inner) {
      if (!ir.nested_blobs) ir.nested_blobs = std::make_unique<Workspace>(ir.spec.workspace);
      made->nested = ir.spec.make_inner(made->op, *ir.nested_blobs);
    }
    require(!made->op.spec->blob_kernel || made->nested, "{} works on blobs and cannot stand in a step net",
            made->op.def.type());
    for (const std::string& name : made->op.def.input()) made->in_slots.push_back(input_slot(ir, name));
    const bool may_sum = may_be_alias(*made->op.spec, 0);
    if (may_sum ? is_settled(ir, *made) : share_slot(ir, *made)) return;
    int in = 0, out = 0;
    made->plain_copy = !may_sum && has_alias(*made->op.spec, &in, &out);
    for (const std::string& name : made->op.def.output()) made->out_slots.push_back(output_slot(ir, name));
    infer(ir, *made);
  } catch (Error& e) {
    ir.add_place(e, *made);
    throw;
  }
  ir.ops.push_back(std::move(made));
}

// A value that is added up over time is written straight into its total if one kernel that can add writes it, and
// nobody else sees it.
void plan_totals(StepIr& ir) {
  const KnownUses known(ir);
  std::map<int, int> terms;  // by slot: totals that it goes to
  for (const auto& sum : ir.spec.totals) ++terms[ir.slot_of(sum.name)];
  for (const auto& [name, tensor, gradient] : ir.spec.totals) {
    StepTotal total{gradient, ir.slot_of(name), tensor};
    require(total.slot >= 0, "the backward step net has no blob \"{}\", which is to be a parameter's gradient", name);
    StepSlot& slot = *ir.slots[total.slot];
    slot.total = true;
    const bool wide = slot.typed && is_half(slot.tensor.dtype()) && tensor.dtype() == DType::float32;
    require(!slot.typed || (slot.tensor.size() == tensor.size() && (wide || slot.tensor.dtype() == tensor.dtype())),
            "the gradient of one timestep, \"{}\", is {}, but the parameter is {}", name, slot.tensor, tensor);
    const std::vector<size_t>& by = ir.writers(total.slot);
    StepOp* const writer = by.empty() ? nullptr : ir.ops[by.back()].get();
    const size_t output = writer ? ir.output_of(*writer, total.slot) : 0;
    const bool shared = terms.at(total.slot) > 1;
    // A kernel on casts adds to a float32 total as it is.
    const auto adds_wide = [&](const Kernel& kernel) {
      return (kernel.sums_to_float || is_on_casts(kernel)) && ir.kernels_fit(*writer);
    };
    const bool adds = writer && writer->kernel && (!wide || adds_wide(*writer->kernel));
    if (adds && ir.uses_of(total.slot) == 1 && !shared && slot.kind == Kind::scratch &&
        writer->op.spec->output_spec(static_cast<int>(output))->accumulates) {
      writer->accumulate |= 1U << output;
      slot.grows = true;
    }
    ir.totals.push_back(total);
  }
}

StepIr build_step(StepSpec spec) {
  StepIr ir;
  ir.spec = std::move(spec);
  ir.net_name = ir.spec.net->name();
  ir.spec.block = ir.ring = ir.after_block = std::max<int64_t>(std::min(ir.spec.block, ir.spec.steps), 1);
  ir.writes = written_names(*ir.spec.net);
  keep_sources_of_aliases(ir);
  add_given_slots(ir);
  for (int i = 0; i < ir.spec.net->op_size(); ++i) add_op(ir, i);
  if (kChecksPasses) check_pass(ir, "");
  plan_totals(ir);
  return ir;
}

}  // namespace stepnet
