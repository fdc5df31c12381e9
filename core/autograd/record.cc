#include "stepnet/record.h"

#include <algorithm>

#include "core/autograd/capture.h"
#include "core/autograd/op_node.h"
#include "core/autograd/tape_tangents.h"
#include "core/autograd/variable_state.h"
#include "core/tensor/small_vector.h"
#include "stepnet/profiler.h"
#include "stepnet/stream_order.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kFew = 4;

// One call of an operator on its way to being recorded.
struct Recording {
  const EagerOp* op;  // what runs: as it was called, or with outputs more
  std::span<const Variable> inputs;
  Place place;
  bool recorded = false;
  Flags needs{inputs.size()};
  const EagerGradient* gradient = nullptr;  // with every output's gradient
  std::vector<Tensor> before = {};          // per input: what it was, where an output overwrites it; or empty
  std::vector<Edge> edges = {};
  std::vector<TensorType> input_types = {};
  const Tensor* input(size_t i) const {
    if (!before.empty() && before[i].defined()) return &before[i];
    return inputs[i].defined() ? &inputs[i].state()->value : nullptr;
  }
};

void check_inputs(const EagerOp& op, std::span<const Variable> inputs) {
  if (static_cast<int>(inputs.size()) != op.inputs())
    fail("{} was bound for {} inputs, and gets {}", op.type(), op.inputs(), inputs.size());
  for (int i = 0; i < op.inputs(); ++i) {
    if (inputs[i].defined() != op.has_input(i))
      fail("{}: input {} ({}) is absent {}", op.type(), i, op.input_name(i),
           inputs[i].defined() ? "in what was bound, and there in the call" : "");
    if (inputs[i].defined() && inputs[i].state()->is_view) check_view(inputs[i]);
  }
}

// Goes on with the operator that has outputs more for its own derivative, whose gradients never arrive from outside.
void keep_less(Recording& r) {
  const EagerOp& fuller = *r.gradient->instead;
  Flags present(static_cast<size_t>(fuller.outputs()));
  for (int o = 0; o < r.op->outputs(); ++o)
    if (r.op->wants_output(o)) present.set(static_cast<size_t>(o));
  r.op = &fuller;
  r.gradient = &fuller.gradient(r.needs, present);
}

void find_needs(Recording& r) {
  if (!tape_state().recording || r.op->spec().gradient_rule == GradientRule::stop) return;
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (r.inputs[i].requires_grad()) {
      r.needs.set(i);
      r.recorded = true;
    }
  if (!r.recorded) return;
  r.gradient = &r.op->gradient(r.needs, r.op->wanted_outputs());
  // Such outputs would have no tangents.
  if (r.gradient->instead && std::ranges::none_of(r.inputs, has_tangents)) keep_less(r);
  r.edges.reserve(r.inputs.size());
  for (const Variable& v : r.inputs) r.edges.push_back(v.gradient_edge());
  r.input_types.reserve(r.inputs.size());
  for (const Variable& v : r.inputs)
    r.input_types.push_back(v.defined() ? TensorType::of(v.dtype(), v.shape()) : TensorType{});
}

bool is_read(const Recording& r, int input) { return r.gradient && r.gradient->program.reads_input[input]; }

bool overlap(const Tensor& a, const Tensor& b) {
  return a.shares_storage(b) && a.offset() < b.offset() + b.bytes() && b.offset() < a.offset() + a.bytes();
}

// What an output overwrites is copied, if a formula reads it, or if the kernel reads it as another input too. Inputs
// that are one value share a copy.
void keep_overwritten(Recording& r, int target) {
  const Variable& written = r.inputs[target];
  const Tensor* last = nullptr;  // that was copied
  Tensor copy;
  for (int i = 0; i < r.op->inputs(); ++i) {
    const Variable& v = r.inputs[i];
    if (!v.defined() || !overlap(v.value(), written.value())) continue;
    const bool same = v.value().offset() == written.value().offset() && v.shape() == written.shape();
    const bool kernel_reads = i != target && !(r.op->spec().elementwise && same);
    if (!is_read(r, i) && !kernel_reads) continue;
    if (!last || last->offset() != v.value().offset() || last->shape() != v.shape()) {
      last = &v.value();
      copy = clone_captured(*last);
      count(TapeEvent::input_cloned);
    }
    r.before[i] = copy;
  }
}

void prepare_writes(Recording& r) {
  r.before.resize(r.inputs.size());
  for (int o = 0; o < r.op->outputs(); ++o) {
    const int target = r.op->in_place(o);
    if (target < 0) continue;
    require(r.inputs[target].defined(), "{}: there is no {} to overwrite", r.op->type(), r.op->input_name(target));
    check_writable(r.inputs[target], r.op->type(), r.recorded);
    keep_overwritten(r, target);
  }
}

// A result in place must be in the bytes of what it overwrites.
void check_overwritten(const Recording& r, std::span<const Tensor> made) {
  for (int o = 0; o < r.op->outputs(); ++o) {
    const int target = r.op->in_place(o);
    if (target < 0) continue;
    const Tensor& was = r.inputs[target].value();
    if (made[o].shape() == was.shape() && made[o].dtype() == was.dtype() && made[o].shares_storage(was)) continue;
    fail("{}: the result is {}, which cannot be written over {}, {}", r.op->type(), made[o], r.op->input_name(target),
         was);
  }
}

// Runs the kernel. The outputs' tensors; those in place are in the variables' own bytes.
void run_kernel(const Recording& r, std::span<Tensor> made) {
  InlineVector<const Tensor*, kFew> in(r.inputs.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = r.input(i);
  InlineVector<Tensor*, kFew> out(made.size());
  for (int o = 0; o < r.op->outputs(); ++o) {
    if (const int target = r.op->in_place(o); target >= 0) {
      made[o] = r.inputs[target].value();
      in[target] = &made[o];
    }
    out[o] = r.op->wants_output(o) ? &made[o] : nullptr;
  }
  RunContext context;
  if (r.op->spec().random) {
    context.seed = random_state().seed;
    context.iteration = next_draw();
  }
  Profiler* const profiler = tape_state().profiler;
  const double start = profiler ? now_seconds() : 0;
  const Device device = device_of_inputs({in.begin(), in.size()}, tape_state().device);
  run_captured(r.op->bound_on(device), in, out, context);
  if (profiler) profiler->record(r.op->type(), now_seconds() - start, 0, 0);
  if (r.op->is_in_place()) check_overwritten(r, made);
}

size_t bytes_kept(const Recording& r, const EagerGradient& gradient, std::span<const Tensor> outputs) {
  size_t bytes = 0;
  for (const int i : gradient.saved_inputs) bytes += r.input(i) ? r.input(i)->bytes() : 0;
  for (const int o : gradient.saved_outputs) bytes += outputs[o].bytes();
  return bytes;
}

// Keeps inputs from which the output can be computed again, where they are the smaller.
void keep_smaller(Recording& r, std::span<const Tensor> outputs) {
  const EagerGradient* again = r.gradient->from_inputs.get();
  if (again && bytes_kept(r, *again, outputs) < bytes_kept(r, *r.gradient, outputs)) r.gradient = again;
}

std::shared_ptr<OpNode> make_node(Recording& r, std::span<const Tensor> outputs) {
  std::vector<TensorType> types;
  types.reserve(outputs.size());
  for (const Tensor& t : outputs) types.push_back(TensorType::of(t.dtype(), t.shape()));
  Device device;
  for (const Tensor& t : outputs)
    if (t.storage() && t.device().kind != DeviceKind::cpu) device = t.device();
  auto node = std::make_shared<OpNode>(r.op->shared_from_this(), *r.gradient, std::move(r.needs), std::move(r.edges),
                                       std::move(r.input_types), std::move(types), r.place);
  InlineVector<const Tensor*, kFew> inputs(r.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = r.input(i);
  node->save(inputs, outputs);
  node->set_stream(stream_now(device));
  if (TapeCapture* capture = tape_state().capture) node->note_types(*capture, inputs, outputs);
  return node;
}

Variable show_output(const Recording& r, int o, Tensor& value, const std::shared_ptr<OpNode>& node) {
  const bool differentiable = node && is_floating(value.dtype());
  if (const int target = r.op->in_place(o); target >= 0) {
    if (differentiable) {
      rebase_history(r.inputs[target], node, o);
    } else if (tape_state().recording && r.inputs[target].requires_grad()) {
      drop_history(r.inputs[target]);  // the operator stops the gradient
    }
    return r.inputs[target];
  }
  Variable v = differentiable ? variable_of(std::move(value), node, o) : Variable(std::move(value));
  const int alias = r.op->alias_of(o);
  if (alias >= 0 && r.inputs[alias].defined() && v.value().shares_storage(r.inputs[alias].value()))
    make_view(v, r.inputs[alias]);
  return v;
}

}  // namespace

void run_into(const EagerOp& op, std::span<const Variable> inputs, std::span<Variable> outputs, Place place) {
  try {
    check_inputs(op, inputs);
    if (moves(inputs)) return run_moving(op, inputs, outputs, place);
    Recording r{&op, inputs, place};
    find_needs(r);
    if (op.is_in_place()) prepare_writes(r);
    InlineVector<Tensor, kFew> made(static_cast<size_t>(r.op->outputs()));
    run_kernel(r, made);
    if (r.recorded) keep_smaller(r, made);
    const std::shared_ptr<OpNode> node = r.recorded ? make_node(r, made) : nullptr;
    for (int o = 0; o < op.outputs(); ++o)
      if (made[o].defined()) outputs[o] = show_output(r, o, made[o], node);
  } catch (Error& e) {
    add_call_place(e, place);
    throw;
  }
}

std::vector<Variable> run(const EagerOp& op, std::span<const Variable> inputs, Place place) {
  std::vector<Variable> outputs(static_cast<size_t>(op.outputs()));
  run_into(op, inputs, outputs, place);
  return outputs;
}

Variable run1(const EagerOp& op, std::span<const Variable> inputs, Place place) {
  InlineVector<Variable, kFew> outputs(static_cast<size_t>(op.outputs()));
  run_into(op, inputs, outputs, place);
  return std::move(outputs[0]);
}

bool is_recorded(std::span<const Variable> inputs) {
  return tape_state().recording &&
         std::any_of(inputs.begin(), inputs.end(), [](const Variable& v) { return v.requires_grad(); });
}

std::vector<Edge> gradient_edges(std::span<const Variable> inputs) {
  std::vector<Edge> edges;
  for (const Variable& v : inputs) edges.push_back(v.gradient_edge());
  return edges;
}

Variable variable_of(Tensor value, std::shared_ptr<Node> node, int output) {
  Variable v(std::move(value));
  v.state()->grad_fn = std::move(node);
  v.state()->output_index = output;
  return v;
}

}  // namespace stepnet::autograd
