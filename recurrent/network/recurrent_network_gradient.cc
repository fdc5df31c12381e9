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
#include <algorithm>

#include "core/operator/anomaly.h"
#include "core/operator/cast_kernels.h"
#include "core/operator/keep_values.h"
#include "core/operator/operator.h"
#include "recurrent/form/activated_gates.h"
#include "recurrent/form/backward_net.h"
#include "recurrent/form/pass_names.h"
#include "recurrent/network/backward.h"
#include "recurrent/network/nested.h"
#include "recurrent/network/segmented_run.h"
#include "recurrent/network/states.h"
#include "recurrent/step/block_size.h"
#include "recurrent/step/passes.h"

namespace stepnet {
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
  std::set<std::string> changing, given;
  for (const StateSpec& state : b.spec.states) changing.insert(b.state_gradient(state));
  for (const StepOutput& output : b.spec.outputs) given.insert(b.renamed(output.external + "_grad"));
  const Segments& segments = b.scratch.segments;
  const std::set<std::string> states = state_names(b.spec);
  for (const Link& link : b.spec.links) {
    LinkTarget& target = targets[b.renamed(link.internal)];
    target.offset = link.offset;
    target.window = link.window;
    target.read_only = states.count(link.external) == 0;
    if (const auto state = segments.states.find(link.external); segments.used && state != segments.states.end()) {
      target.whole = segments.work.states.at(link.external);
      target.segment_of = state->second.rows;
    } else {
      target.whole = linked_tensor(b.call.workspace, "link_external", link.internal, b.renamed(link.external));
    }
  }
  for (const Link& link : b.spec.backward_links) {
    const std::string external = b.renamed(link.external);
    Tensor whole;
    if (const auto it = b.gradients.find(external); it != b.gradients.end()) {
      whole = it->second;
      if (!whole.defined()) continue;  // a sequence's gradient, which nobody wants
    } else {
      whole = linked_tensor(b.call.workspace, "backward_link_external", link.internal, external);
    }
    LinkTarget target{whole, link.offset, link.window};
    target.read_only = given.count(external) > 0;
    target.changes = changing.count(external) > 0;
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
  ShapeKey key = b.scratch.forward_key;
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
  const bool may_stay = !(KeepValues::now() && scratch.backward && scratch.backward->overwrites());
  if (may_stay && scratch.backward && key == scratch.backward_key && scratch.backward->rebind_externals()) {
    for (const auto& [name, link] : links) scratch.backward->rebind_link(name, link);
    std::vector<Tensor> sums;
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
  if (scratch.is_fetched || KeepValues::now()) program.disabled_passes.insert("overwrite");
  program.visible = visible_slabs(b, slabs);
  program.backward = true;
  program.descending = !b.spec.reverse;
  program.links = std::move(links);
  program.slabs = std::move(slabs);
  if (scratch.segments.used) program.slab_steps = scratch.segments.steps;
  program.packs = scratch.packs;
  for (const SummedValue& s : sums) program.totals.push_back({s.name, totals[s.gradient].second, s.gradient});
  program.workspace = &b.call.workspace;
  program.make_inner = make_nested;
  program.observer = b.call.run.observer;
  const BackwardReads reads = backward_reads(b.spec);
  std::erase_if(program.slabs, [&](const auto& slab) { return reads.values.count(slab.first) == 0; });
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
  require(call.in[last] && call.in[last]->holds<RecurrentScratch>() && call.in[last]->get<RecurrentScratch>().has_run(),
          "the last input must be the scratch output of a RecurrentNetwork that has run");
  auto& scratch = call.in[last]->get<RecurrentScratch>();
  if (scratch.backward_of != args.identity) {
    scratch.backward.reset();
    scratch.backward_of.reset();
    scratch.backward_spec = parse_recurrent(args, call.def, call.def.input_size());
    name_param_gradients(scratch.backward_spec, call.def);
    if (AnomalyWatch::here()) scratch.backward_spec.disabled_passes = {pass_names().begin(), pass_names().end()};
    if (!scratch.is_fetched) activate_gates(scratch.backward_spec);
    scratch.backward_spec.links = links_for_backward(scratch.backward_spec);
    scratch.gradients_in_turn.clear();
    for (const std::string& name : gradients_taken_in_turn(scratch.backward_spec, call.def, call.net))
      scratch.gradients_in_turn[name] = {};
    scratch.written_rows = written_rows(scratch.backward_spec);
    scratch.backward_of = args.identity;
  }
  Backward b{scratch.backward_spec,
             scratch,
             call,
             static_cast<int>(scratch.backward_spec.outputs_with_grads.size()),
             0,
             0,
             {},
             {}};
  require(b.spec.has_backward, "argument \"backward_step_net\" is missing");
  require(b.spec.activated == scratch.forward_spec.activated,
          "its step nets are not those that RecurrentNetwork ran with");
  check_layout(b);
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
      .no_gradient("second derivatives of recurrent networks are not available");
}

}  // namespace
}  // namespace stepnet
