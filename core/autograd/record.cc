#include "core/autograd/record.h"

#include <algorithm>

#include "core/autograd/offload.h"
#include "core/autograd/op_node.h"
#include "core/autograd/variable_state.h"
#include "core/inline_vector.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kFew = 4;

// One call of an operator on its way to being recorded.
struct Recording {
  const EagerOp& op;
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
    if (inputs[i].defined()) check_view(inputs[i]);
  }
}

void find_needs(Recording& r) {
  if (!tape_state().recording || r.op.spec().gradient_rule == GradientRule::stop) return;
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (r.inputs[i].requires_grad()) {
      r.needs.set(i);
      r.recorded = true;
    }
  if (!r.recorded) return;
  r.gradient = &r.op.gradient(r.needs, r.op.wanted_outputs());
  r.edges.reserve(r.inputs.size());
  for (const Variable& v : r.inputs) r.edges.push_back(v.gradient_edge());
  r.input_types.reserve(r.inputs.size());
  for (const Variable& v : r.inputs)
    r.input_types.push_back(v.defined() ? TensorType::of(v.dtype(), v.shape()) : TensorType{});
}

bool is_read(const Recording& r, int input) { return r.gradient && r.gradient->program.reads_input[input]; }

// What an output overwrites is copied, if a formula reads it, or if the kernel reads it as another input too.
void keep_overwritten(Recording& r) {
  r.before.resize(r.inputs.size());
  for (int o = 0; o < r.op.outputs(); ++o) {
    const int target = r.op.in_place(o);
    if (target < 0) continue;
    check_writable(r.inputs[target], r.op.type());
    if (r.recorded) r.op.check_in_place(r.needs);
    const Tensor& old = r.inputs[target].value();
    for (int i = 0; i < r.op.inputs(); ++i) {
      const Variable& v = r.inputs[i];
      if (!v.defined() || !v.value().shares_storage(old)) continue;
      const bool same = v.value().offset() == old.offset() && v.shape() == old.shape();
      const bool kernel_reads = i != target && !(r.op.spec().elementwise && same);
      if (!is_read(r, i) && !kernel_reads) continue;
      r.before[i] = same && r.before[target].defined() ? r.before[target] : v.value().clone();
      if (!(same && i != target && r.before[target].defined())) count(TapeEvent::input_cloned);
    }
  }
}

void check_overwritten(const Recording& r, const std::vector<Tensor>& before) {
  for (int o = 0; o < r.op.outputs(); ++o) {
    const int target = r.op.in_place(o);
    if (target < 0) continue;
    const Tensor& was = before[o];
    Tensor& now = r.inputs[target].state()->value;
    if (now.shape() == was.shape() && now.dtype() == was.dtype() && now.shares_storage(was)) continue;
    const std::string became = now.str();
    now = was;
    fail("{}: the result is {}, which cannot be written over {}, {}", r.op.type(), became, r.op.input_name(target),
         now);
  }
}

// Runs the kernel. The outputs' tensors; those in place are the variables' own.
void run_kernel(Recording& r, std::span<Tensor> made) {
  InlineVector<const Tensor*, kFew> in(r.inputs.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = r.input(i);
  InlineVector<Tensor*, kFew> out(made.size());
  std::vector<Tensor> old;
  for (int o = 0; o < r.op.outputs(); ++o) {
    const int target = r.op.in_place(o);
    if (target < 0) {
      out[o] = r.op.wants_output(o) ? &made[o] : nullptr;
      continue;
    }
    out[o] = &r.inputs[target].state()->value;
    in[target] = out[o];
    old.resize(made.size());
    old[o] = *out[o];
  }
  RunContext context;
  if (r.op.spec().random) {
    context.seed = random_state().seed;
    context.iteration = next_draw();
  }
  run_op(r.op.bound(), in, out, context);
  if (old.empty()) return;
  check_overwritten(r, old);
  for (size_t o = 0; o < old.size(); ++o)
    if (old[o].defined()) made[o] = std::move(old[o]);
}

std::shared_ptr<OpNode> make_node(Recording& r, std::span<const Tensor> outputs) {
  std::vector<TensorType> types;
  types.reserve(outputs.size());
  for (const Tensor& t : outputs) types.push_back(TensorType::of(t.dtype(), t.shape()));
  auto node = std::make_shared<OpNode>(r.op.shared_from_this(), *r.gradient, std::move(r.needs), std::move(r.edges),
                                       std::move(r.input_types), std::move(types), r.place);
  InlineVector<const Tensor*, kFew> inputs(r.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = r.input(i);
  node->save(inputs, outputs);
  return node;
}

Variable show_output(const Recording& r, int o, Tensor& value, const std::shared_ptr<OpNode>& node) {
  const bool differentiable = node && is_floating(value.dtype());
  if (const int target = r.op.in_place(o); target >= 0) {
    if (differentiable) {
      rebase_history(r.inputs[target], node, o);
    } else if (tape_state().recording && r.inputs[target].requires_grad()) {
      r.inputs[target].state()->grad_fn.reset();  // the operator stops the gradient
    }
    return r.inputs[target];
  }
  Variable v = differentiable ? variable_of(std::move(value), node, o) : Variable(std::move(value));
  const int alias = r.op.alias_of(o);
  if (alias >= 0 && r.inputs[alias].defined() && v.value().shares_storage(r.inputs[alias].value())) {
    v.state()->is_view = true;
    v.state()->view_version = v.version();
  }
  return v;
}

void add_place(Error& error, Place place) {
  if (!error.has("at")) error.add("at", place.str());
}

std::vector<bool> always_there(const OpSpec& spec, int outputs) {
  if (outputs >= 0) return std::vector<bool>(outputs, true);
  std::vector<bool> wanted;
  for (const ParamSpec& p : spec.outputs)
    if (p.variadic) {
      for (int i = 0; i < p.at_least; ++i) wanted.push_back(true);
    } else if (!p.optional) {
      wanted.push_back(true);
    } else {
      break;
    }
  return wanted;
}

}  // namespace

void run_into(const EagerOp& op, std::span<const Variable> inputs, std::span<Variable> outputs, Place place) {
  try {
    check_inputs(op, inputs);
    Recording r{op, inputs, place};
    find_needs(r);
    if (op.is_in_place()) keep_overwritten(r);
    InlineVector<Tensor, kFew> made(outputs.size());
    run_kernel(r, made);
    const std::shared_ptr<OpNode> node = r.recorded ? make_node(r, made) : nullptr;
    for (int o = 0; o < op.outputs(); ++o)
      if (made[o].defined()) outputs[o] = show_output(r, o, made[o], node);
  } catch (Error& e) {
    add_place(e, place);
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

std::vector<Variable> run(const std::string& type, const std::vector<Variable>& inputs,
                          const std::vector<Argument>& args, const RunOptions& options, Place place) {
  std::shared_ptr<const EagerOp> op;
  try {
    EagerOp::Signature signature{.type = type, .inputs = {}, .outputs = {}, .args = args, .in_place = {}};
    for (const Variable& v : inputs) signature.inputs.push_back(v.defined());
    signature.outputs = always_there(op_spec(type), options.outputs);
    if (options.in_place) {
      signature.in_place.assign(signature.outputs.size(), -1);
      require(!inputs.empty() && !signature.outputs.empty(), "{} has no input to overwrite", type);
      signature.in_place[0] = 0;
    }
    op = EagerOp::get(signature);
  } catch (Error& e) {
    add_place(e, place);
    throw;
  }
  return run(*op, inputs, place);
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

void check_writable(const Variable& variable, const std::string& by) {
  const VariableState& s = *variable.state();
  finish_offload_of(s.value);
  if (!tape_state().recording) return;
  if (s.requires_grad)
    throw Error(fmt::format("{} would write in place to a leaf that requires a gradient, {}", by, s.value),
                "do it inside NoGrad, or on a copy");
  if (s.is_view)
    throw Error(
        fmt::format("{} would write in place to a view, {}, and the history of what it is a view of would be wrong", by,
                    s.value),
        "write to the base, or to a copy");
}

void rebase_history(const Variable& variable, std::shared_ptr<Node> node, int output) {
  VariableState& s = *variable.state();
  if (s.retains_grad) {
    if (s.grad_fn) s.grad_fn->hooks().retained.erase(s.output_index);
    node->hooks().retained[output] = variable.shared_state();
  }
  s.grad_fn = std::move(node);
  s.output_index = output;
}

void check_view(const Variable& variable) {
  const VariableState& s = *variable.state();
  if (!s.is_view || !s.grad_fn || s.view_version == s.value.version() || !tape_state().recording) return;
  throw Error(fmt::format("{} is a view, and what it is a view of was written in place since it was taken", s.value),
              "take the view again");
}

}  // namespace stepnet::autograd
