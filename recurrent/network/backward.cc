#include "recurrent/network/backward.h"

#include <algorithm>

#include "core/net/dataflow.h"
#include "core/operator/anomaly.h"
#include "core/operator/cast_kernels.h"
#include "recurrent/form/backward_net.h"
#include "recurrent/form/passes.h"
#include "recurrent/network/nested.h"
#include "recurrent/network/segments.h"
#include "recurrent/network/states.h"
#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

void add_rows(const Tensor& from, Tensor to) {
  require(from.dtype() == to.dtype() && from.size() == to.size(), "a gradient of {} is needed, but {} was given", to,
          from);
  add_elements(from, std::move(to));
}

// The blobs that the first operator that names them writes, and does not add to.
std::set<std::string> made_blobs(const NetDef& net) {
  std::set<std::string> named, made;
  for (const OperatorDef& op : net.op()) {
    named.insert(op.input().begin(), op.input().end());
    for (const std::string& name : op.output())
      if (named.insert(name).second) made.insert(name);
  }
  return made;
}

// True if some operator writes the blob that is linked to row t + `offset` of the gradient tensor for every t.
bool every_row_is_written(const Backward& b, const std::string& gradient, int64_t offset) {
  return b.scratch.written_rows.count({gradient, offset}) > 0;
}

// The same of a state's gradient, of which no step writes `more` rows.
bool state_is_written(const Backward& b, const std::string& gradient, int64_t more) {
  return every_row_is_written(b, gradient, b.spec.reverse ? more : 0);
}

// What arrives for output k of those with gradients, which is like `seen`; undefined if nothing does.
Tensor given_gradient(const Backward& b, size_t k, const std::string& output, const Tensor& seen) {
  if (!b.call.in[k]) return {};
  const Tensor& given = std::as_const(*b.call.in[k]).tensor();
  const std::string& name = b.call.def.input(static_cast<int>(k));
  require(given.defined(), "the gradient \"{}\" holds nothing yet", name);
  require(given.dtype() == seen.dtype() && given.size() == seen.size(),
          "the gradient \"{}\" of \"{}\" is {}, but that output is {}", name, output, given, seen);
  return given.reshaped(seen.shape());
}

}  // namespace

std::set<std::pair<std::string, int64_t>> written_rows(const RecurrentSpec& spec) {
  std::set<std::pair<std::string, int64_t>> rows;
  const std::set<std::string> made = made_blobs(spec.backward_net);
  for (const Link& link : spec.backward_links)
    if (made.count(spec.renamed(link.internal)) > 0) rows.emplace(spec.renamed(link.external), link.offset);
  return rows;
}

void prepare_state_gradients(Backward& b) {
  for (const StateSpec& state : b.spec.states) {
    const Tensor whole = b.state(state);
    require(whole.rank() >= 3 && whole.dim(0) >= b.steps,
            "the state \"{}\" is now {}, not what the forward run made it", state.name, whole);
    const std::string& name = b.state_gradient(state);
    const auto turn = b.scratch.gradients_in_turn.find(name);
    const bool in_turn = turn != b.scratch.gradients_in_turn.end() && state_is_written(b, name, 1) &&
                         whole.dim(0) == b.steps + 1 && b.steps > 1;
    if (turn != b.scratch.gradients_in_turn.end()) turn->second.rows = in_turn ? whole.dim(0) : 0;
    if (turn != b.scratch.gradients_in_turn.end() && !in_turn) turn->second.latest = Tensor();
    Tensor& gradient = in_turn ? turn->second.latest : b.call.workspace.create(name).tensor();
    const Shape shape = in_turn ? whole.shape().with(0, 2) : whole.shape();
    if (!(gradient.storage() && gradient.dtype() == whole.dtype() && gradient.shape() == shape))
      gradient = Tensor::empty(whole.dtype(), shape, b.scratch.device);
    b.gradients[name] = gradient;
  }
}

void clear_state_gradients(const Backward& b) {
  for (const StateSpec& state : b.spec.states) {
    const std::string& name = b.state_gradient(state);
    Tensor gradient = b.gradients.at(name);
    const int64_t more = b.state(state).dim(0) - b.steps;
    if (!state_is_written(b, name, more)) {
      gradient.fill_zero();
    } else {
      gradient.rows((b.spec.reverse ? 0 : b.steps) % gradient.dim(0), more).fill_zero();
    }
  }
}

void prepare_sequence_gradients(Backward& b) {
  const auto sequences = b.sequences();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto [input, output] = sequences[i];
    const Tensor& sequence = b.forward_input(input);
    const std::string& name = b.scratch.gradient_names.sequences[i];
    Tensor& gradient = b.gradients[name];  // undefined if nobody wants it
    Blob* out = b.output(output);
    if (!out) continue;
    out->tensor().resize(sequence.dtype(), sequence.shape(), b.scratch.device);
    gradient = out->tensor();
    if (!every_row_is_written(b, name, 0)) gradient.fill_zero();
  }
}

std::vector<RowSum> take_outside_gradients(Backward& b) {
  std::vector<RowSum> all;
  for (size_t k = 0; k < b.spec.outputs_with_grads.size(); ++k) {
    const auto output = static_cast<size_t>(b.spec.outputs_with_grads[k]);
    if (output >= b.spec.views.size()) continue;
    const StateView& view = b.spec.views[output];
    const auto state = std::ranges::find(b.spec.states, view.state, &StateSpec::name);
    const Tensor& whole = b.gradients.at(b.state_gradient(*state));
    const Tensor over_time = b.state(*state);
    const RowRange rows = shown_rows(view, over_time, b.spec.reverse);
    const Tensor given = given_gradient(b, k, view.output, over_time.rows(rows.first, rows.count));
    if (!given.defined()) continue;
    const int64_t more = over_time.dim(0) - b.steps;
    const bool by_steps = state_is_written(b, b.state_gradient(*state), more);
    for (int64_t row = rows.first; row < rows.first + rows.count; ++row)
      if (!by_steps || (b.spec.reverse ? row < more : row >= b.steps))
        add_rows(given.rows(row - rows.first, 1), whole.rows(row % whole.dim(0), 1));
    if (by_steps) all.push_back({given, whole, rows.first, b.spec.reverse ? int64_t{1} : int64_t{0}});
  }
  return all;
}

// The step reads the gradients of outputs that it writes in place; zeros where none arrives.
void take_output_gradients(Backward& b) {
  if (b.spec.outputs.empty()) return;
  std::map<size_t, size_t> given;  // by output: the last place among those with gradients
  for (size_t k = 0; k < b.spec.outputs_with_grads.size(); ++k)
    given[static_cast<size_t>(b.spec.outputs_with_grads[k])] = k;
  for (size_t i = 0; i < b.spec.outputs.size(); ++i) {
    const StepOutput& output = b.spec.outputs[i];
    const Tensor slab = output_over_time(b.scratch.slab(output.internal));
    Tensor& gradient = b.gradients[b.scratch.gradient_names.outputs[i]];
    if (const auto k = given.find(b.spec.views.size() + i); k != given.end())
      gradient = given_gradient(b, k->second, output.external, slab);
    if (gradient.defined() || output.gradient.empty()) continue;
    Tensor& zeros = b.scratch.zeros[output.external];
    if (!(zeros.defined() && zeros.dtype() == slab.dtype() && zeros.shape() == slab.shape()))
      zeros = Tensor::zeros(slab.dtype(), slab.shape(), b.scratch.device);
    gradient = zeros;
  }
}

void finish_initial_states(const Backward& b) {
  for (size_t i = 0; i < b.spec.states.size(); ++i) {
    Blob* out = b.output(static_cast<int>(1 + b.spec.params.size() + i));
    if (!out) continue;
    const StateSpec& state = b.spec.states[i];
    require(state.initial >= 0, "the state \"{}\" starts at zero; its initial value has no gradient", state.name);
    const Tensor& initial = b.forward_input(state.initial);
    const Tensor& whole = b.gradients.at(b.state_gradient(state));
    const Tensor gradient = whole.rows((b.spec.reverse ? b.steps : 0) % whole.dim(0), initial_rows(initial));
    // Where the network has several gradients, the next one takes the same tensor for its own.
    if (initial.rank() >= 2 && !b.scratch.is_read_again) {
      out->tensor() = gradient.reshaped(initial.shape());
      continue;
    }
    out->tensor().resize(initial.dtype(), initial.shape(), b.scratch.device);
    if (initial.rank() >= 2) {
      out->tensor().copy_from(gradient.reshaped(initial.shape()));
      continue;
    }
    out->tensor().fill_zero();
    if (!is_floating(initial.dtype())) continue;
    for (int64_t r = 0; r < b.batch; ++r) add_rows(gradient.row(0).row(r), out->tensor());
  }
}

// RecurrentNetworkGradient: runs a backward step net from the last timestep to the first, or in reverse of that.
//
// The gradient tensor of a state has the state's shape; the step at t reads its row t + L and writes its row t, so the
// gradients before and after a step are two windows of one tensor. A gradient that arrives from outside is added to
// row t after step t, which has written it, and to rows that no step writes before the loop. Gradients of parameters
// add up over time in the fixed order t = T-1 ... 0, inside the kernel where it can add. Of a network that runs in
// reverse, the step at t reads row t and writes row t + 1, for t = 0 ... T-1.
//
// Inputs: the gradients of the outputs in outputs_with_grads, all forward inputs, all forward outputs (scratch last).
// Outputs: the gradients of the first sequence, of the inputs in `param`, of the initial states ("" for one that starts
// at zero), and of the other sequences; "" if not wanted.
namespace {

NetDef needed_operators(const Backward& b) {
  std::set<std::string> needed;
  for (const Link& link : b.spec.backward_links) {
    const auto it = b.gradients.find(b.renamed(link.external));
    if (it == b.gradients.end() || it->second.defined()) needed.insert(b.renamed(link.internal));
  }
  for (size_t i = 0; i < b.spec.params.size(); ++i)
    if (b.output(static_cast<int>(i) + 1)) needed.insert(b.spec.params[i].grad);
  return needed_operators(b.spec.backward_net, std::move(needed));
}

std::map<std::string, LinkTarget> link_targets(const Backward& b) {
  std::map<std::string, LinkTarget> targets;
  const auto is_one_of = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const Segments& segments = b.scratch.segments;
  for (const Link& link : b.spec.links) {
    LinkTarget& target = targets[b.renamed(link.internal)];
    target.offset = link.offset;
    target.window = link.window;
    target.read_only = !is_state(b.spec, link.external);
    if (const auto state = segments.states.find(link.external); segments.used && state != segments.states.end()) {
      target.whole = segments.work.states.at(link.external);
      target.segment_of = state->second.rows;
    } else {
      target.whole = linked_tensor(b.call.workspace, "link_external", link.internal, b.renamed(link.external));
    }
  }
  for (const Link& link : b.spec.backward_links) {
    const std::string& external = b.renamed(link.external);
    Tensor whole;
    if (const auto it = b.gradients.find(external); it != b.gradients.end()) {
      whole = it->second;
      if (!whole.defined()) continue;  // a sequence's gradient, which nobody wants
    } else {
      whole = linked_tensor(b.call.workspace, "backward_link_external", link.internal, external);
    }
    LinkTarget target{whole, link.offset, link.window};
    target.read_only = is_one_of(b.scratch.gradient_names.outputs, external);
    target.changes = is_one_of(b.scratch.gradient_names.states, external);
    if (const auto turn = b.scratch.gradients_in_turn.find(external); turn != b.scratch.gradients_in_turn.end())
      target.rows = turn->second.rows;
    require(targets.emplace(b.renamed(link.internal), target).second,
            "\"backward_link_internal\" links \"{}\", which \"link_internal\" links already", link.internal);
  }
  return targets;
}

// Total gradients of the wanted parameters, zero, with the name of the one-timestep gradient. Integers have none.
// Those of half types are summed in float32 on the CPU.
std::vector<std::pair<std::string, Tensor>> prepare_totals(Backward& b) {
  std::vector<std::pair<std::string, Tensor>> totals;
  totals.reserve(b.spec.params.size());
  for (size_t i = 0; i < b.spec.params.size(); ++i) {
    Blob* out = b.output(static_cast<int>(i) + 1);
    if (!out) continue;
    const Tensor& value = b.forward_input(b.spec.params[i].input);
    out->tensor().resize(value.dtype(), value.shape(), b.scratch.device);
    out->tensor().fill_zero();
    if (!is_floating(value.dtype())) continue;
    Tensor total = out->tensor();
    if (is_half(value.dtype()) && b.scratch.device.kind == DeviceKind::cpu) {
      total = Tensor::zeros(DType::float32, value.shape());
      b.wide_totals.emplace_back(total, out);
    }
    totals.emplace_back(b.spec.params[i].grad, total);
  }
  return totals;
}

void finish_totals(Backward& b) {
  for (auto& [total, out] : b.wide_totals) cast_elements(total, out->tensor(), b.call.run);
}

// What is summed over time can be deferred where it stands in an operator of its own.
NetDef prepared_net(const Backward& b, std::vector<SummedValue>& sums) {
  NetDef net = needed_operators(b);
  if (!b.spec.runs_pass("defer")) return net;
  sums = open_sums(net, std::move(sums));
  std::set<std::string> names;
  for (const SummedValue& s : sums) names.insert(s.name);
  return split_sums(net, names);
}

ShapeKey shape_key(const Backward& b, const std::map<std::string, LinkTarget>& links,
                   const std::vector<std::pair<std::string, Tensor>>& totals) {
  ShapeKey key;
  key.reserve(b.scratch.forward_key.size() + links.size() + totals.size());
  key = b.scratch.forward_key;
  for (const auto& [name, link] : links) key.emplace_back(link.whole.dtype(), link.whole.shape());
  for (const auto& [name, total] : totals) key.emplace_back(total.dtype(), total.shape());
  return key;
}

// The slabs that show outputs, under whatever name.
std::set<std::string> visible_slabs(const Backward& b, const std::map<std::string, Tensor>& slabs) {
  std::set<std::string> visible;
  std::set<const void*> shown;
  for (const StepOutput& output : b.spec.outputs) {
    visible.insert(output.internal);
    if (const auto slab = slabs.find(output.internal); slab != slabs.end()) shown.insert(slab->second.storage().get());
  }
  shown.erase(nullptr);
  for (const auto& [name, slab] : slabs)
    if (shown.count(slab.storage().get()) > 0) visible.insert(name);
  return visible;
}

bool writes(const NetDef& net, const std::string& name) {
  return std::ranges::any_of(net.op(),
                             [&](const OperatorDef& op) { return std::ranges::count(op.output(), name) > 0; });
}

// States' gradients that operators see which run for a block of timesteps get all their rows.
void complete_gradients(Backward& b) {
  RecurrentScratch& scratch = b.scratch;
  if (scratch.gradients_in_turn.empty()) return;
  const std::set<const void*> in_blocks = scratch.backward->links_in_blocks();
  std::set<const void*> seen;
  std::erase_if(scratch.gradients_in_turn, [&](auto& turn) {
    const void* const storage = turn.second.latest.storage().get();
    if (turn.second.rows == 0 || in_blocks.count(storage) == 0) return false;
    seen.insert(storage);
    b.gradients.erase(turn.first);
    return true;
  });
  if (seen.empty()) return;
  scratch.backward->let_go_of(seen);
  prepare_state_gradients(b);
  for (const auto& [name, link] : link_targets(b)) scratch.backward->rebind_link(name, link);
}

void bind_program(Backward& b) {
  RecurrentScratch& scratch = b.scratch;
  std::map<std::string, LinkTarget> links = link_targets(b);
  const std::vector<std::pair<std::string, Tensor>> totals = prepare_totals(b);
  ShapeKey key = shape_key(b, links, totals);
  std::map<std::string, Tensor> slabs = scratch.slabs();
  const bool may_stay = !(b.call.run.keep_values && scratch.backward && scratch.backward->overwrites());
  if (may_stay && scratch.backward && key == scratch.backward_key && scratch.backward->rebind_externals()) {
    for (const auto& [name, link] : links) scratch.backward->rebind_link(name, link);
    std::vector<Tensor> sums;
    sums.reserve(totals.size());
    for (const auto& [name, total] : totals) sums.push_back(total);
    scratch.backward->rebind_totals(sums);
    for (const auto& [name, slab] : slabs) scratch.backward->rebind_slab(name, slab);
    return;
  }
  std::vector<SummedValue> sums;
  for (size_t i = 0; i < totals.size(); ++i) sums.push_back({totals[i].first, i});
  const NetDef net = prepared_net(b, sums);
  StepSpec program;
  program.net = &net;
  program.random_name = scratch.forward_spec.step_net.name();  // a recomputed draw is the same draw
  program.timestep = b.spec.timestep;
  program.steps = b.steps;
  program.batch = b.batch;
  program.block = deferred_block(b.batch) * blocks_at_once(b.scratch);
  program.device = b.scratch.device;
  program.disabled_passes = b.spec.disabled_passes;
  if (scratch.is_fetched || b.call.run.keep_values) program.disabled_passes.insert("overwrite");
  program.visible = visible_slabs(b, slabs);
  program.backward = true;
  program.descending = !b.spec.reverse;
  program.links = std::move(links);
  program.slabs = std::move(slabs);
  if (scratch.segments.used && !scratch.segments.rebuilds) program.slab_steps = scratch.segments.steps;
  program.packs = scratch.packs;
  for (const SummedValue& s : sums) program.totals.push_back({s.name, totals[s.gradient].second, s.gradient});
  program.workspace = &b.call.workspace;
  program.make_inner = make_nested;
  program.observer = b.call.run.observer;
  const BackwardReads reads = backward_reads(b.spec);
  std::erase_if(program.slabs, [&](const auto& slab) { return reads.values.count(slab.first) == 0; });
  for (const auto& [name, slab] : program.slabs)
    if (const auto it = scratch.types.find(name); it != scratch.types.end() && it->second.value)
      program.contents[name] = *it->second.value;
  for (const std::string& name : reads.shapes)
    if (const auto it = scratch.types.find(name); it != scratch.types.end())
      program.shapes[name] = it->second;
    else if (writes(scratch.forward_spec.step_net, name))
      program.untyped.insert(name);
  scratch.backward.reset();
  scratch.backward = std::make_unique<StepProgram>(compile_step(std::move(program)));
  complete_gradients(b);
  scratch.backward_key = shape_key(b, link_targets(b), totals);
}

// Points the backward program to a segment's values, and runs it there.
void run_segment(Backward& b, const std::vector<RowSum>& outside, const SegmentValues& values, const StepRange& range,
                 bool first) {
  const Segments& segments = b.scratch.segments;
  StepProgram& program = *b.scratch.backward;
  for (const Link& link : b.spec.links) {
    const auto state = segments.states.find(link.external);
    if (state == segments.states.end()) continue;
    LinkTarget target{values.states.at(link.external), link.offset, link.window};
    target.segment_of = state->second.rows;
    target.origin = range.first;
    program.rebind_link(b.renamed(link.internal), target);
  }
  for (const auto& [name, view] : segments.views)
    program.rebind_slab(name, values.slabs.at(view.slab).reshaped(view.shape), range.first);
  program.run_range(b.call.run, outside, range, first);
}

void run_program(Backward& b, const std::vector<RowSum>& outside) {
  if (!b.scratch.segments.used) return b.scratch.backward->run(b.call.run, outside);
  require(b.scratch.segments.steps % b.scratch.backward->segment_unit() == 0,
          "segments of {} timesteps do not hold whole blocks of {}", b.scratch.segments.steps,
          b.scratch.backward->segment_unit());
  run_segments_backward(b.scratch, b.call.workspace, b.call.run,
                        [&](const SegmentValues& values, const StepRange& range, bool first) {
                          run_segment(b, outside, values, range, first);
                        });
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
  for (const int i : b.spec.more_sequences)
    require(b.first_input + i < inputs - 1, "\"more_sequences\" has {}, but the operator has {} inputs", i, inputs);
  for (int i = b.first_input; i < inputs - 1; ++i) {
    require(b.call.in[i] != nullptr, "input {} is missing", i);
    require(std::as_const(*b.call.in[i]).tensor().defined(), "the input \"{}\" holds nothing yet", b.call.def.input(i));
  }
}

// Where "param_grads" is absent the step net uses the total's own name; if the total has got another, the usual one.
void name_param_gradients(RecurrentSpec& spec, const OperatorDef& def) {
  const std::set<std::string> written = written_names(spec.backward_net);
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

// While one lives, a backward run leaves what the network kept as it is.
class KeepScope {
 public:
  KeepScope(RunContext& run, bool keep) : run_(run), before_(run.keep_values) { run.keep_values = before_ || keep; }
  ~KeepScope() { run_.keep_values = before_; }
  KeepScope(const KeepScope&) = delete;
  KeepScope& operator=(const KeepScope&) = delete;

 private:
  RunContext& run_;
  bool before_;
};

// Several gradients of one network, as those of a gradient are, read what it kept.
bool is_read_again(const BlobCall& call) {
  const std::string& kept = call.def.input(call.def.input_size() - 1);
  return std::ranges::count_if(call.net.op(), [&](const OperatorDef& op) {
           return op.type() == kRecurrentNetworkGradient && op.input_size() > 0 &&
                  op.input(op.input_size() - 1) == kept;
         }) > 1;
}

StepGradientNames names_of_gradients(const RecurrentSpec& spec, const OperatorDef& def) {
  StepGradientNames names;
  const auto gradient_of = [&](const std::string& name) { return spec.renamed(name + "_grad"); };
  const auto sequence = [&](int input) {
    return gradient_of(def.input(static_cast<int>(spec.outputs_with_grads.size()) + input));
  };
  for (const StateSpec& state : spec.states) names.states.push_back(gradient_of(state.name));
  names.sequences.push_back(sequence(0));
  for (const int input : spec.more_sequences) names.sequences.push_back(sequence(input));
  for (const StepOutput& output : spec.outputs) names.outputs.push_back(gradient_of(output.external));
  return names;
}

void run_backward(const RecurrentArgs& args, BlobCall& call) {
  const auto last = call.in.size() - 1;
  require(call.in[last] && call.in[last]->holds<RecurrentScratch>() && call.in[last]->get<RecurrentScratch>().has_run(),
          "the last input must be the scratch output of a RecurrentNetwork that has run");
  auto& scratch = call.in[last]->get<RecurrentScratch>();
  if (scratch.backward_of != args.identity) {
    scratch.backward.reset();
    scratch.backward_of.reset();
    scratch.backward_spec = parse_recurrent(args, call.def, call.def.input_size());
    name_param_gradients(scratch.backward_spec, call.def);
    if (call.run.anomalies) scratch.backward_spec.disabled_passes = {pass_names().begin(), pass_names().end()};
    adapt_step_nets(scratch.backward_spec, scratch);
    scratch.backward_spec.links = links_for_backward(scratch.backward_spec);
    scratch.gradients_in_turn.clear();
    for (const std::string& name : gradients_taken_in_turn(scratch.backward_spec, call.def, call.net))
      scratch.gradients_in_turn[name] = {};
    scratch.written_rows = written_rows(scratch.backward_spec);
    scratch.is_read_again = is_read_again(call);
    scratch.gradient_names = {};
    scratch.backward_of = args.identity;
  }
  const KeepScope keep(call.run, scratch.is_read_again);
  Backward b{scratch.backward_spec,
             scratch,
             call,
             static_cast<int>(scratch.backward_spec.outputs_with_grads.size()),
             0,
             0,
             {},
             {}};
  require(b.spec.has_backward, "argument \"backward_step_net\" is missing");
  require(b.spec.activated == scratch.forward_spec.activated &&
              b.spec.rematerialized == scratch.forward_spec.rematerialized,
          "its step nets are not those that RecurrentNetwork ran with");
  check_layout(b);
  if (scratch.gradient_names.sequences.empty()) scratch.gradient_names = names_of_gradients(b.spec, call.def);
  for (const StateSpec& s : b.spec.states)
    require(b.state_gradient(s) != call.def.input(static_cast<int>(last)),
            "the gradient of the state \"{}\" has the name of the scratch, \"{}\"", s.name, b.state_gradient(s));
  const Tensor& sequence = b.forward_input(0);
  require(sequence.shape() == scratch.sequence, "the sequence is {}, but in the forward run it was {}",
          sequence.shape(), scratch.sequence);
  b.steps = sequence.dim(0);
  b.batch = sequence.dim(1);
  const bool is_gone = scratch.segments.used && scratch.segments.next == scratch.segments.plan.actions.size();
  require(!is_gone,
          "what RecurrentNetwork kept of its segments is gone after an earlier backward run; run it again before");
  prepare_state_gradients(b);
  prepare_sequence_gradients(b);
  take_output_gradients(b);
  bind_program(b);
  clear_state_gradients(b);
  const std::vector<RowSum> outside = take_outside_gradients(b);
  require(!scratch.overwritten,
          "what RecurrentNetwork kept has been overwritten by the gradients of an earlier run; run it again before, or "
          "name \"overwrite\" in \"disabled_passes\"");
  scratch.overwritten = scratch.backward->overwrites();
  run_program(b, outside);
  call.run.timestep = 0;
  finish_totals(b);
  const RecurrentCounters& per_step = scratch.backward->copied();
  count_recurrent({.copied = per_step.copied * b.steps, .initial = 0, .spread = per_step.spread * b.steps});
  finish_initial_states(b);
  if (!scratch.is_fetched) scratch.backward->let_go_of_outside();
  if (scratch.segments.used && scratch.forward && !scratch.is_fetched) scratch.forward->let_go_of_outside();
  if (scratch.rebuilder) scratch.rebuilder->let_go_of_outside();
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
          "are the gradients of the outputs with gradients, all forward inputs and all forward outputs; outputs are "
          "the gradients of the sequence, of the parameters, and of the initial states.")
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
      .runs_dry()
      .no_gradient(
          "it has no formula, but networks that compute its derivatives (recurrent/form/network_gradients.cc)");
}

}  // namespace

}  // namespace stepnet
