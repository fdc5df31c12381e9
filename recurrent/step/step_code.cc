#include "recurrent/step/step_code.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/operator/program_gradients.h"

namespace stepnet {
namespace {

using Kind = StepCode::Kind;
using Phase = Schedule::Phase;
using SlotKind = GradientProgram::SlotKind;

// Whether the outputs' elements are computed one by one from the inputs'.
bool is_elementwise(const OpSpec& spec) {
  return spec.elementwise || spec.fused || spec.sums_inputs || spec.role == Role::fill_like ||
         spec.family == "pointwise" || spec.family == "fill";
}

// An operator that has no body, by what its registration says.
Kind kind_of(const OpSpec& spec, const BoundOp& op, const ShapeCall& shapes) {
  const void* args = op.args.get();
  const auto has_columns = [&](const auto& fn) { return fn && !fn(args, shapes).empty(); };
  if (spec.random || spec.side_effect || spec.blob_kernel) return Kind::whole;
  if (spec.reshapes || spec.role == Role::alias || spec.role == Role::copy) return Kind::view;
  if (has_columns(spec.takes_columns) || has_columns(spec.puts_columns)) return Kind::columns;
  if (is_elementwise(spec)) return Kind::elementwise;
  if (spec.family == "products") return Kind::product;
  // The gradient of a reduction spreads what there is of each row.
  if (spec.family == "reduce" && shapes.known(0))
    return shapes.out(0).known && shapes.out(0).shape.size() > shapes.shape(0).size() ? Kind::elementwise
                                                                                      : Kind::reduction;
  return Kind::whole;
}

// Takes the operators of a step net apart, in their order.
class Decomposer {
 public:
  explicit Decomposer(const StepIr& ir) : ir_(ir), now_(ir.slots.size(), -1) { code_.net_name = ir.net_name; }

  void add(const StepOp& op) {
    phase_ = op.phase;
    stage_ = op.stage;
    if (op.part_ops.empty()) {
      add_call(op.op, op.in_slots, op.out_slots, op.accumulate, op.nested || op.plain_copy);
      return;
    }
    for (size_t i = 0; i < op.part_ops.size(); ++i)
      add_call(op.part_ops[i], op.parts[i].in, op.parts[i].out, op.parts[i].accumulate, false);
  }

  StepCode finish() {
    find_readers();
    for (size_t k = 0; k < code_.kernels.size(); ++k) find_borders(static_cast<int>(k));
    return std::move(code_);
  }

 private:
  int new_value(std::string name, int slot, const TensorType& type, bool written) {
    code_.values.push_back({std::move(name), slot, type, written});
    return static_cast<int>(code_.values.size()) - 1;
  }

  // The value that the slot holds now.
  int held(int slot) {
    if (slot < 0) return -1;
    if (now_[slot] < 0) now_[slot] = new_value(ir_.slots[slot]->name, slot, ir_.type_of(slot), false);
    return now_[slot];
  }

  void add_call(const BoundOp& op, const std::vector<int>& in_slots, const std::vector<int>& out_slots,
                uint32_t accumulate, bool whole) {
    std::vector<int> in, added_to;
    for (const int s : in_slots) in.push_back(held(s));
    for (size_t o = 0; o < out_slots.size(); ++o)
      added_to.push_back(out_slots[o] >= 0 && (accumulate >> o & 1) != 0 ? held(out_slots[o]) : -1);
    std::vector<int> out;
    for (const int s : out_slots) out.push_back(s < 0 ? -1 : new_value(ir_.slots[s]->name, s, ir_.type_of(s), true));
    for (size_t o = 0; o < out_slots.size(); ++o)
      if (out[o] >= 0) now_[out_slots[o]] = out[o];
    const bool adds = std::ranges::any_of(added_to, [](int v) { return v >= 0; });
    if (!whole && !adds && op.spec->composed && take_apart(op, in, out)) return;
    append(op, in, out, std::move(added_to), whole);
  }

  // By the operator's body; false if the body does not say how some output is computed.
  bool take_apart(const BoundOp& op, const std::vector<int>& in, const std::vector<int>& out) {
    const GradientProgram body = record_body(*op.spec, op.def, op.args.get());
    for (size_t o = 0; o < out.size(); ++o)
      if (out[o] >= 0 &&
          (o >= body.results.size() || !body.results[o].dense.defined() || !code_.values[out[o]].type.known))
        return false;
    std::vector<int> value(body.slots.size(), -1);
    for (size_t s = 0; s < body.slots.size(); ++s)
      if (body.slots[s].kind == SlotKind::input) value[s] = in[body.slots[s].index];
    std::vector<int> result(body.slots.size(), -1);  // the output that the slot is
    for (size_t o = 0; o < out.size(); ++o)
      if (out[o] >= 0) result[body.results[o].dense.slot] = out[o];
    for (const GradientProgram::Step& step : body.steps) add_step(op, step, result, value);
    // An output that is an input or another output as it is, or has another shape.
    for (size_t o = 0; o < out.size(); ++o)
      if (const int slot = out[o] < 0 ? -1 : body.results[o].dense.slot; slot >= 0 && value[slot] != out[o])
        append(bind_op(copy(), op.net_name, op.index, op.device), {value[slot]}, {out[o]}, {-1}, false);
    return true;
  }

  static OperatorDef copy() {
    OperatorDef def;
    def.set_type(op_with_role(Role::copy).type);
    def.add_input("x");
    def.add_output("y");
    return def;
  }

  void add_step(const BoundOp& whole, const GradientProgram::Step& step, const std::vector<int>& result,
                std::vector<int>& value) {
    const OperatorDef def = call_of(step, [](int slot) { return slot < 0 ? "" : fmt::format("{}", slot); });
    const BoundOp op = bind_op(def, whole.net_name, whole.index, whole.device);
    std::vector<int> in, out;
    for (const int s : step.inputs) in.push_back(s < 0 ? -1 : value[s]);
    std::vector<TensorType> made(step.outputs.size());
    for (size_t o = 0; o < made.size(); ++o) made[o].absent = step.outputs[o] < 0;
    infer_types(op, types(in), made);
    for (size_t o = 0; o < made.size(); ++o) {
      const int s = step.outputs[o];
      if (s >= 0) value[s] = fits(result[s], made[o]) ? result[s] : temporary(whole, made[o]);
      out.push_back(s < 0 ? -1 : value[s]);
    }
    if (op.spec->composed && take_apart(op, in, out)) return;
    append(op, in, out, std::vector<int>(out.size(), -1), false);
  }

  bool fits(int value, const TensorType& made) const {
    return value >= 0 && made.known && code_.values[value].type.shape == made.shape;
  }

  int temporary(const BoundOp& op, const TensorType& type) {
    const std::string& name = op.def.output_size() > 0 ? op.def.output(0) : op.def.type();
    const bool inner = !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    return new_value(fmt::format("{}%{}", inner ? "" : name, temporaries_++), -1, type, true);
  }

  std::vector<TensorType> types(const std::vector<int>& values) const {
    std::vector<TensorType> found(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      found[i].absent = values[i] < 0;
      if (values[i] >= 0) found[i] = code_.values[values[i]].type;
    }
    return found;
  }

  bool varies(int value) const {
    return value >= 0 && (code_.values[value].written || ir_.varies(code_.values[value].slot));
  }

  // Whether it reads a matrix that is the same in all timesteps.
  bool keeps_a_matrix(const StepCode::Instruction& i) const {
    std::vector<bool> wanted;
    for (const int v : i.out) wanted.push_back(v >= 0);
    const std::vector<bool> reads = value_reads(*i.op.spec, static_cast<int>(i.in.size()), wanted);
    for (size_t k = 0; k < i.in.size(); ++k)
      if (reads[k] && i.in[k] >= 0 && !varies(i.in[k]) && code_.values[i.in[k]].type.shape.rank() > 1) return true;
    return false;
  }

  void append(const BoundOp& op, std::vector<int> in, std::vector<int> out, std::vector<int> added_to, bool whole) {
    StepCode::Instruction made;
    const std::vector<TensorType> in_types = types(in);
    std::vector<TensorType> out_types = types(out);
    made.kind = whole ? Kind::whole : kind_of(*op.spec, op, ShapeCall(in_types, out_types));
    made.op = op;
    made.in = std::move(in);
    made.out = std::move(out);
    made.added_to = std::move(added_to);
    made.resident = made.kind == Kind::product && keeps_a_matrix(made);
    // Columns and views go with the arithmetic beside them.
    const bool joins = made.kind == Kind::elementwise || made.kind == Kind::columns || made.kind == Kind::view;
    StepCode::Kernel* last = code_.kernels.empty() ? nullptr : &code_.kernels.back();
    if (joins && last && last->kind == Kind::elementwise && last->phase == phase_ && last->stage == stage_) {
      last->code.push_back(std::move(made));
      return;
    }
    StepCode::Kernel kernel{joins ? Kind::elementwise : made.kind, phase_, stage_, {}, {}, {}};
    kernel.code.push_back(std::move(made));
    code_.kernels.push_back(std::move(kernel));
  }

  void find_readers() {
    readers_.assign(code_.values.size(), kNobody);
    for (size_t k = 0; k < code_.kernels.size(); ++k)
      for (const StepCode::Instruction& i : code_.kernels[k].code)
        for (const std::vector<int>* values : {&i.in, &i.added_to})
          for (const int v : *values)
            if (v >= 0)
              readers_[v] =
                  readers_[v] == kNobody || readers_[v] == static_cast<int>(k) ? static_cast<int>(k) : kSeveral;
  }

  // What other kernels read, and the last value of a slot with bytes that somebody outside may see.
  bool is_seen(int value, int kernel) const {
    const int slot = code_.values[value].slot;
    const bool stays = slot >= 0 && (ir_.slots[slot]->kind != StepSlot::Kind::scratch || ir_.is_total(slot));
    return (stays && now_[slot] == value) || (readers_[value] != kNobody && readers_[value] != kernel);
  }

  void find_borders(int index) {
    StepCode::Kernel& kernel = code_.kernels[index];
    std::set<int> made, read;
    for (const StepCode::Instruction& i : kernel.code) {
      for (const std::vector<int>* values : {&i.in, &i.added_to})
        for (const int v : *values)
          if (v >= 0 && made.count(v) == 0 && read.insert(v).second) kernel.in.push_back(v);
      for (const int v : i.out)
        if (v >= 0 && made.insert(v).second && is_seen(v, index)) kernel.out.push_back(v);
    }
  }

  const StepIr& ir_;
  StepCode code_;
  std::vector<int> now_;      // by slot: the value that it holds; -1: none was asked for yet
  std::vector<int> readers_;  // by value: the one kernel that reads it, or one of these
  static constexpr int kNobody = -1, kSeveral = -2;
  Phase phase_ = Phase::step;
  int stage_ = 0, temporaries_ = 1;
};

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::product:
      return "product";
    case Kind::reduction:
      return "reduction";
    case Kind::elementwise:
      return "elementwise";
    case Kind::columns:
      return "columns";
    case Kind::view:
      return "view";
    case Kind::whole:
      return "whole";
  }
  return "";
}

std::string names(const StepCode& code, const std::vector<int>& values) {
  std::vector<std::string_view> found;
  for (const int v : values) found.push_back(v < 0 ? "-" : std::string_view(code.values[v].name));
  return fmt::format("{}", fmt::join(found, ", "));
}

std::string instruction_text(const StepCode& code, const StepCode::Instruction& i) {
  const bool adds = std::ranges::any_of(i.added_to, [](int v) { return v >= 0; });
  return fmt::format("{} {} {}({}){}", names(code, i.out), adds ? "+=" : "=", i.op.def.type(), names(code, i.in),
                     i.resident ? "; the weights stay" : "");
}

}  // namespace

StepCode step_code(const StepIr& ir) {
  // As they run: what is there before a block, timesteps stage by stage, and what comes after a block.
  std::vector<const StepOp*> ops;
  for (const auto& op : ir.ops) ops.push_back(op.get());
  std::ranges::stable_sort(ops, {}, [](const StepOp* op) {
    return std::pair(op->stage, op->phase == Phase::before ? 0 : op->phase == Phase::step ? 1 : 2);
  });
  Decomposer decomposer(ir);
  for (const StepOp* op : ops) decomposer.add(*op);
  return decomposer.finish();
}

std::string to_text(const StepCode& code) {
  std::string text = fmt::format("step code of \"{}\"\n", code.net_name);
  for (const StepCode::Kernel& kernel : code.kernels) {
    const char* phase = kernel.phase == Phase::before ? "before" : kernel.phase == Phase::after ? "after" : "step";
    text += fmt::format("  {:<6}  {:<11} ", phase, kind_name(kernel.kind));
    if (kernel.code.size() == 1) {
      text += instruction_text(code, kernel.code[0]) + "\n";
      continue;
    }
    text += fmt::format("{} from {}\n", names(code, kernel.out), names(code, kernel.in));
    for (const StepCode::Instruction& i : kernel.code) text += "    " + instruction_text(code, i) + "\n";
  }
  return text;
}

}  // namespace stepnet
