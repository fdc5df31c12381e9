// RecurrentNetworkGradient: runs a backward step net from the last timestep to the first.
//
// The gradient tensor of a state has the state's shape; the step at t reads its row t + L and writes its row t, so the
// gradients before and after a step are two windows of one tensor. A gradient that arrives from outside is added to
// row t after step t, which has written it, and to rows that no step writes before the loop. Gradients of parameters
// add up over time in the fixed order t = T-1 ... 0, inside the kernel where it can add.
//
// Inputs: the gradients of the outputs in outputs_with_grads, all forward inputs, all forward outputs (scratch last).
// Outputs: the gradients of the sequence, of the inputs in `param`, and of the initial states; "" if not wanted.
#include <algorithm>

#include "core/operator.h"
#include "core/vector_math.h"
#include "recurrent/scratch.h"
#include "recurrent/split_sums.h"

namespace stepnet {
namespace {

// One backward run: the operator's call, and what its arguments say.
struct Backward {
  const RecurrentSpec& spec;
  RecurrentScratch& scratch;
  BlobCall& call;
  int first_input = 0;  // of the forward inputs among the inputs
  int64_t steps = 0, batch = 0;
  std::map<std::string, Tensor> gradients;  // by the name that links use

  const Tensor& forward_input(int i) const { return std::as_const(*call.in[first_input + i]).tensor(); }
  const std::string& forward_name(int i) const { return call.def.input(first_input + i); }
  Blob* output(int i) const { return i < static_cast<int>(call.out.size()) ? call.out[i] : nullptr; }
  std::string renamed(const std::string& name) const {
    const auto it = spec.rename.find(name);
    return it == spec.rename.end() ? name : it->second;
  }
  std::string state_gradient(const StateSpec& s) const { return renamed(s.name + "_grad"); }
  std::string sequence_gradient() const { return renamed(forward_name(0) + "_grad"); }
};

void add_rows(const Tensor& from, Tensor to) {
  require(from.dtype() == to.dtype() && from.size() == to.size(), "a gradient of {} is needed, but {} was given", to,
          from);
  if (to.dtype() == DType::float32) {
    vec_axpy(1.0f, from.span<float>(), to.span<float>());
  } else {
    vec_axpy(1.0, from.span<double>(), to.span<double>());
  }
}

bool names(const google::protobuf::RepeatedPtrField<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Whether the first operator that names the blob writes it, and does not add to it.
bool is_made(const NetDef& net, const std::string& blob) {
  for (const OperatorDef& op : net.op()) {
    if (names(op.input(), blob)) return false;
    if (names(op.output(), blob)) return true;
  }
  return false;
}

// True if some operator writes the blob that is linked to row t of the gradient tensor: then rows 0 ... T-1 are
// written.
bool every_row_is_written(const Backward& b, const std::string& gradient) {
  for (const Link& link : b.spec.backward_links) {
    if (b.renamed(link.external) != gradient || link.offset != 0) continue;
    if (is_made(b.spec.backward_net, b.renamed(link.internal))) return true;
  }
  return false;
}

void prepare_state_gradients(Backward& b) {
  for (const StateSpec& state : b.spec.states) {
    const Tensor& whole = b.call.workspace.fetch(state.name);
    require(whole.rank() == 3 && whole.dim(0) >= b.steps,
            "the state \"{}\" is now {}, not what the forward run made it", state.name, whole);
    const std::string name = b.state_gradient(state);
    Tensor& gradient = b.call.workspace.create(name).tensor();
    if (!(gradient.defined() && gradient.dtype() == whole.dtype() && gradient.shape() == whole.shape()))
      gradient = Tensor::empty(whole.dtype(), whole.shape());
    const int64_t first = every_row_is_written(b, name) ? b.steps : 0;
    gradient.rows(first, gradient.dim(0) - first).fill_zero();
    b.gradients[name] = gradient;
  }
}

void prepare_sequence_gradient(Backward& b) {
  Blob* out = b.output(0);
  const Tensor& sequence = b.forward_input(0);
  Tensor gradient;
  if (out) {
    out->tensor().resize(sequence.dtype(), sequence.shape());
    gradient = out->tensor();
    if (!every_row_is_written(b, b.sequence_gradient())) gradient.fill_zero();
  }
  b.gradients[b.sequence_gradient()] = gradient;  // undefined if nobody wants it
}

// The gradient of an output, to be added to a state's gradient from row `start` on.
struct Outside {
  Tensor gradient;  // [rows, B, D]
  Tensor whole;     // the state's gradient
  int64_t start = 0;
  int64_t written = 0;  // rows below are written by their timesteps, and added to behind them

  void add(int64_t row) const {
    if (row >= start && row < whole.dim(0)) add_rows(gradient.rows(row - start, 1), whole.rows(row, 1));
  }
};

// Rows that no step writes, such as those from T on, are added to at once.
std::vector<Outside> take_outside_gradients(Backward& b) {
  std::vector<Outside> all;
  for (size_t k = 0; k < b.spec.outputs_with_grads.size(); ++k) {
    if (!b.call.in[k]) continue;
    const StateView& view = b.spec.views[b.spec.outputs_with_grads[k]];
    const auto state = std::find_if(b.spec.states.begin(), b.spec.states.end(),
                                    [&](const StateSpec& s) { return s.name == view.state; });
    Outside o;
    o.whole = b.gradients.at(b.state_gradient(*state));
    const Tensor& given = std::as_const(*b.call.in[k]).tensor();
    const std::string& name = b.call.def.input(static_cast<int>(k));
    require(given.defined(), "the gradient \"{}\" holds nothing yet", name);
    o.start = view.offset >= 0 ? view.offset : o.whole.dim(0) + view.offset;
    const Tensor seen = o.whole.rows(o.start, o.whole.dim(0) - o.start);
    require(given.dtype() == seen.dtype() && given.size() == seen.size(),
            "the gradient \"{}\" of \"{}\" is {}, but that output is {}", name, view.output, given, seen);
    o.gradient = given.reshaped(seen.shape());
    o.written = every_row_is_written(b, b.state_gradient(*state)) ? b.steps : 0;
    for (int64_t row = o.written; row < o.whole.dim(0); ++row) o.add(row);
    all.push_back(std::move(o));
  }
  return all;
}

// Operators of the backward step net that some wanted gradient needs, with outputs that none needs left empty.
NetDef needed_operators(const Backward& b) {
  std::set<std::string> needed;
  for (const Link& link : b.spec.backward_links) {
    const auto it = b.gradients.find(b.renamed(link.external));
    if (it == b.gradients.end() || it->second.defined()) needed.insert(b.renamed(link.internal));
  }
  for (size_t i = 0; i < b.spec.params.size(); ++i)
    if (b.output(static_cast<int>(i) + 1)) needed.insert(b.spec.params[i].grad);
  NetDef net = b.spec.backward_net;
  net.clear_op();
  std::vector<OperatorDef> kept;
  for (int i = b.spec.backward_net.op_size() - 1; i >= 0; --i) {
    OperatorDef op = b.spec.backward_net.op(i);
    const OpSpec& schema = op_spec(op.type());
    bool any = schema.side_effect;
    for (int o = 0; o < op.output_size(); ++o) {
      if (needed.count(op.output(o)) > 0) {
        any = true;
      } else if (schema.output_spec(o) && schema.output_spec(o)->uses) {
        op.set_output(o, "");
      }
    }
    if (!any) continue;
    for (const std::string& name : op.input()) needed.insert(name);
    kept.push_back(std::move(op));
  }
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) *net.add_op() = *it;
  return net;
}

std::map<std::string, LinkTarget> link_targets(const Backward& b) {
  std::map<std::string, LinkTarget> targets;
  for (const Link& link : b.spec.links)
    targets[b.renamed(link.internal)] = {
        linked_tensor(b.call.workspace, "link_external", link.internal, b.renamed(link.external)), link.offset,
        link.window};
  for (const Link& link : b.spec.backward_links) {
    const std::string external = b.renamed(link.external);
    Tensor whole;
    if (const auto it = b.gradients.find(external); it != b.gradients.end()) {
      whole = it->second;
      if (!whole.defined()) continue;  // the sequence's gradient, which nobody wants
    } else {
      whole = linked_tensor(b.call.workspace, "backward_link_external", link.internal, external);
    }
    const LinkTarget target = {whole, link.offset, link.window,
                               b.gradients.count(external) > 0 && external != b.sequence_gradient()};
    require(targets.emplace(b.renamed(link.internal), target).second,
            "\"backward_link_internal\" links \"{}\", which \"link_internal\" links already", link.internal);
  }
  return targets;
}

// Total gradients of the wanted parameters, zero, with the name of the one-timestep gradient. Integers have none.
std::vector<std::pair<std::string, Tensor>> prepare_totals(const Backward& b) {
  std::vector<std::pair<std::string, Tensor>> totals;
  for (size_t i = 0; i < b.spec.params.size(); ++i) {
    Blob* out = b.output(static_cast<int>(i) + 1);
    if (!out) continue;
    const Tensor& value = b.forward_input(b.spec.params[i].input);
    out->tensor().resize(value.dtype(), value.shape());
    out->tensor().fill_zero();
    if (is_floating(value.dtype())) totals.emplace_back(b.spec.params[i].grad, out->tensor());
  }
  return totals;
}

// What is summed over time can be deferred where it stands in an operator of its own.
NetDef prepared_net(const Backward& b, std::vector<SummedValue>& sums) {
  NetDef net = needed_operators(b);
  if (!b.spec.defer) return net;
  sums = open_sums(net, std::move(sums));
  std::set<std::string> names;
  for (const SummedValue& s : sums) names.insert(s.name);
  return split_sums(net, names);
}

void bind_program(Backward& b, const std::map<std::string, LinkTarget>& links,
                  const std::vector<std::pair<std::string, Tensor>>& totals) {
  RecurrentScratch& scratch = b.scratch;
  ShapeKey key = scratch.forward_key;
  for (const auto& [name, link] : links) key.emplace_back(link.whole.dtype(), link.whole.shape());
  for (const auto& [name, total] : totals) key.emplace_back(total.dtype(), total.shape());
  std::map<std::string, Tensor> slabs;
  for (const auto& [name, type] : scratch.types)
    if (const Tensor slab = scratch.forward->slab(name); slab.defined()) slabs[name] = slab;
  if (scratch.backward && key == scratch.backward_key && scratch.backward->rebind_externals()) {
    for (const auto& [name, link] : links) scratch.backward->rebind_link(name, link.whole);
    for (size_t i = 0; i < totals.size(); ++i) scratch.backward->rebind_total(i, totals[i].second);
    for (const auto& [name, slab] : slabs) scratch.backward->rebind_slab(name, slab);
    return;
  }
  std::vector<SummedValue> sums;
  for (size_t i = 0; i < totals.size(); ++i) sums.push_back({totals[i].first, i});
  const NetDef net = prepared_net(b, sums);
  StepProgramSpec program;
  program.net = &net;
  program.random_name = scratch.forward_spec.step_net.name();  // a recomputed draw is the same draw
  program.timestep = b.spec.timestep;
  program.steps = b.steps;
  program.block = block_of(b.batch);
  program.hoist = b.spec.hoist;
  program.defer = b.spec.defer;
  program.backward = true;
  program.links = links;
  program.slabs = std::move(slabs);
  for (const SummedValue& s : sums) program.totals.push_back({s.name, totals[s.gradient].second, s.gradient});
  program.workspace = &b.call.workspace;
  const BackwardReads reads = backward_reads(b.spec);
  std::erase_if(program.slabs, [&](const auto& slab) { return reads.values.count(slab.first) == 0; });
  for (const std::string& name : reads.shapes)
    if (const auto it = scratch.types.find(name); it != scratch.types.end()) program.shapes[name] = it->second;
  scratch.backward.reset();
  scratch.backward = std::make_unique<StepProgram>(std::move(program));
  scratch.backward_key = std::move(key);
}

void finish_initial_states(const Backward& b) {
  for (size_t i = 0; i < b.spec.states.size(); ++i) {
    Blob* out = b.output(static_cast<int>(1 + b.spec.params.size() + i));
    if (!out) continue;
    const StateSpec& state = b.spec.states[i];
    const Tensor& initial = b.forward_input(state.initial);
    const Tensor& gradient = b.gradients.at(b.state_gradient(state));
    if (initial.rank() >= 2) {
      out->tensor() = gradient.rows(0, initial_rows(initial)).reshaped(initial.shape());
      continue;
    }
    out->tensor().resize(initial.dtype(), initial.shape());
    out->tensor().fill_zero();
    if (!is_floating(initial.dtype())) continue;
    for (int64_t r = 0; r < b.batch; ++r) add_rows(gradient.row(0).row(r), out->tensor());
  }
}

void check_layout(const Backward& b) {
  const int inputs = static_cast<int>(b.call.in.size());
  require(inputs >= b.first_input + 2,
          "it has {} inputs, but takes {} gradients of outputs, the inputs of RecurrentNetwork and its outputs", inputs,
          b.first_input);
  for (const StateSpec& s : b.spec.states)
    require(b.first_input + s.initial < inputs - 1,
            "\"initial_recurrent_state_ids\" has {}, but the operator has {} inputs", s.initial, inputs);
  for (const ParamSpecGrad& p : b.spec.params)
    require(b.first_input + p.input < inputs - 1, "\"param\" has {}, but the operator has {} inputs", p.input, inputs);
  for (int i = b.first_input; i < inputs - 1; ++i) {
    require(b.call.in[i] != nullptr, "input {} is missing", i);
    require(std::as_const(*b.call.in[i]).tensor().defined(), "the input \"{}\" holds nothing yet", b.call.def.input(i));
  }
}

// Where "param_grads" is absent the step net uses the total's own name; if the total has got another, the usual one.
void name_param_gradients(RecurrentSpec& spec, const OperatorDef& def) {
  std::set<std::string> written;
  for (const OperatorDef& op : spec.backward_net.op()) written.insert(op.output().begin(), op.output().end());
  for (size_t i = 0; i < spec.params.size(); ++i) {
    std::string& grad = spec.params[i].grad;
    const int output = static_cast<int>(i) + 1;
    const int input = static_cast<int>(spec.outputs_with_grads.size()) + spec.params[i].input;
    if (grad.empty() && output < def.output_size()) grad = def.output(output);
    if (written.count(grad) == 0 && spec.unnamed_params && input < def.input_size() &&
        written.count(def.input(input) + "_grad") > 0)
      grad = def.input(input) + "_grad";
    if (const auto it = spec.rename.find(grad); it != spec.rename.end()) grad = it->second;
  }
}

void preflight(const RecurrentArgs& args, const OperatorDef& def, const Workspace&) {
  parse_recurrent(args, def, def.input_size());
}

void run_backward(const RecurrentArgs& args, BlobCall& call) {
  const auto last = call.in.size() - 1;
  require(call.in[last] && call.in[last]->holds<RecurrentScratch>() && call.in[last]->get<RecurrentScratch>().forward,
          "the last input must be the scratch output of a RecurrentNetwork that has run");
  auto& scratch = call.in[last]->get<RecurrentScratch>();
  if (scratch.backward_of != args.identity) {
    scratch.backward.reset();
    scratch.backward_of.reset();
    scratch.backward_spec = parse_recurrent(args, call.def, call.def.input_size());
    name_param_gradients(scratch.backward_spec, call.def);
    scratch.backward_spec.links = links_for_backward(scratch.backward_spec);
    scratch.backward_of = args.identity;
  }
  Backward b{scratch.backward_spec,
             scratch,
             call,
             static_cast<int>(scratch.backward_spec.outputs_with_grads.size()),
             0,
             0,
             {}};
  require(b.spec.has_backward, "argument \"backward_step_net\" is missing");
  check_layout(b);
  for (const StateSpec& s : b.spec.states)
    require(b.state_gradient(s) != call.def.input(static_cast<int>(last)),
            "the gradient of the state \"{}\" has the name of the scratch, \"{}\"", s.name, b.state_gradient(s));
  const Tensor& sequence = b.forward_input(0);
  require(sequence.shape() == scratch.sequence, "the sequence is {}, but in the forward run it was {}",
          sequence.shape(), scratch.sequence);
  b.steps = sequence.dim(0);
  b.batch = sequence.dim(1);
  prepare_state_gradients(b);
  prepare_sequence_gradient(b);
  const std::vector<Outside> outside = take_outside_gradients(b);
  bind_program(b, link_targets(b), prepare_totals(b));
  scratch.backward->start_run();
  for (int64_t t = b.steps - 1; t >= 0; --t) {
    scratch.backward->run_step(t, call.run);
    for (const Outside& o : outside)
      if (t < o.written) o.add(t);
  }
  call.run.timestep = 0;
  const RecurrentCounters& per_step = scratch.backward->copied();
  count_recurrent({.copied = per_step.copied * b.steps, .initial = 0, .spread = per_step.spread * b.steps});
  finish_initial_states(b);
}

void run(const RecurrentArgs& args, BlobCall& call) {
  with_place(call, [&] { run_backward(args, call); });
}

REGISTER(recurrent_network_gradient) {
  OpBuilder<RecurrentArgs> b("RecurrentNetworkGradient");
  declare_recurrent_args(b);
  return b
      .doc(
          "The gradient of RecurrentNetwork: runs its backward step net from the last timestep to the first. Inputs "
          "are "
          "the gradients of the outputs with gradients, all forward inputs and all forward outputs; outputs are the "
          "gradients of the sequence, of the parameters, and of the initial states.")
      .input("inputs", "output gradients, forward inputs, forward outputs")
      .object()
      .optional()
      .variadic()
      .output("outputs", "gradients of the sequence, parameters and initial states")
      .any_type()
      .optional()
      .variadic()
      .preflight(preflight)
      .blobs(run)
      .no_gradient("second derivatives of recurrent networks are not available");
}

}  // namespace
}  // namespace stepnet
