// RecurrentNetwork: runs a step net over time.
//
// For t = 0 ... T-1 the step net runs with its linked blobs showing rows of the sequence and of the state tensors. A
// state tensor is [T + L, B, D]: rows 0 ... L-1 are the initial value, and the step at t writes row t + L, so the state
// before and after a step are two windows of one tensor and nothing is copied but the initial rows. Outputs are views.
// For states that need less memory see recurrent/network/states.h.
// Formula and conventions: the public format's RecurrentNetwork.
#include <algorithm>
#include <limits>

#include "core/net/dataflow.h"
#include "core/operator/anomaly.h"
#include "core/operator/dry_run.h"
#include "recurrent/form/example_nets.h"
#include "recurrent/form/net_storage.h"
#include "recurrent/form/passes.h"
#include "recurrent/network/nested.h"
#include "recurrent/network/rebuild.h"
#include "recurrent/network/segments.h"
#include "recurrent/network/states.h"
#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"
#include "stepnet/bound_op.h"
#include "stepnet/net.h"
#include "stepnet/operator.h"

namespace stepnet {

std::string place_of(const BlobCall& call) {
  std::string name = call.def.name();
  for (const std::string& output : call.def.output())
    if (name.empty()) name = output;
  const std::string where = source_text(call.def);
  return fmt::format("{}{}{} \"{}\" of net \"{}\"", where, where.empty() ? "" : ", ", call.def.type(), name,
                     call.net.name());
}

const Tensor& linked_tensor(const Workspace& workspace, const std::string& argument, const std::string& internal,
                            const std::string& external) {
  const Blob* blob = workspace.find(external);
  // Not by require(): runs in every iteration, and the texts of the messages cost more than the checks.
  if (!blob)
    fail("\"{}\" names \"{}\" for \"{}\", but there is no such blob.{}", argument, external, internal,
         suggest(external, workspace.names()));
  if (!blob->is_tensor() || !blob->tensor().defined())
    fail("\"{}\" names \"{}\" for \"{}\", which holds {}", argument, external, internal, blob->type_str());
  const Tensor& whole = blob->tensor();
  if (whole.rank() < 1)
    fail("\"{}\" is linked to \"{}\", which is {} and has no rows", internal, external, whole.str());
  return whole;
}

int64_t blocks_at_once(const RecurrentScratch& scratch) {
  return scratch.device.kind == DeviceKind::cpu || scratch.segments.used ? 1 : 8;
}

int64_t forward_block(const RecurrentScratch& scratch, int64_t batch) {
  return hoisted_block(batch) * blocks_at_once(scratch);
}

namespace {

void check_sequence(const std::string& name, const Shape& shape) {
  require(shape.rank() >= 2, "the sequence \"{}\" must be [T, B, ...], not {}", name, shape);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();  // the timestep is an int32
  require(shape[0] <= most, "the sequence \"{}\" has {} timesteps, more than the {} that can be counted", name,
          shape[0], most);
}

ShapeKey shape_key(const BlobCall& call, const std::map<std::string, LinkTarget>& links) {
  ShapeKey key;
  key.reserve(call.in.size() + links.size());
  for (size_t i = 0; i < call.in.size(); ++i)
    if (call.in[i] && call.in[i]->is_tensor()) {
      const Tensor& t = std::as_const(*call.in[i]).tensor();
      key.emplace_back(t.dtype(), t.shape());
    }
  for (const auto& [name, link] : links) key.emplace_back(link.whole.dtype(), link.whole.shape());
  return key;
}

void compile(RecurrentScratch& scratch, BlobCall& call, const std::map<std::string, LinkTarget>& links, int64_t steps) {
  const RecurrentSpec& spec = scratch.forward_spec;
  StepSpec program;
  program.net = &spec.step_net;
  program.random_name = spec.step_net.name();
  program.timestep = spec.timestep;
  program.steps = steps;
  program.device = scratch.device;
  program.batch = call.in[0]->tensor().dim(1);
  program.block = forward_block(scratch, program.batch);
  program.disabled_passes = spec.disabled_passes;
  program.descending = spec.reverse;
  program.links = links;
  program.workspace = &call.workspace;
  program.make_inner = make_nested;
  program.observer = call.run.observer;
  program.keep_all = scratch.is_fetched;
  if (spec.has_backward)
    for (const std::string& name : backward_reads(spec).values)
      if (spec.recompute.count(name) == 0) program.keep.insert(name);
  if (spec.has_backward)
    for (const Link& link : links_for_backward(spec)) program.keep.erase(link.internal);
  for (const StepOutput& output : spec.outputs) {
    program.keep.insert(output.internal);
    program.visible.insert(output.internal);
  }
  if (scratch.segments.used && !scratch.segments.rebuilds) program.slab_steps = scratch.segments.steps;
  program.packs = scratch.packs;
  scratch.backward.reset();
  scratch.rebuilder.reset();
  scratch.forward_slabs.clear();
  scratch.forward.reset();  // its slabs go before new ones come
  scratch.forward = std::make_unique<StepProgram>(compile_step(std::move(program)));
  check_outputs(spec, *scratch.forward, call.in[0]->tensor().dim(1));
  scratch.types = scratch.forward->types();
  plan_segments(scratch);
}

// States and views are blobs that the run creates. They must not replace the scratch or each other, nor may a state
// replace what the operator reads.
void check_names_are_free(const RecurrentSpec& spec, const OperatorDef& def) {
  const std::string& scratch = def.output(def.output_size() - 1);
  const std::set<std::string> inputs(def.input().begin(), def.input().end());
  std::set<std::string> states;
  for (const StateSpec& s : spec.states) {
    states.insert(s.name);
    require(s.name != scratch, "\"recurrent_states\" names \"{}\", the operator's last output", s.name);
    require(inputs.count(s.name) == 0, "\"recurrent_states\" names \"{}\", an input of the operator", s.name);
  }
  for (const StepOutput& o : spec.outputs) {
    require(o.external != scratch && states.count(o.external) == 0,
            "\"output_external\" names \"{}\", the operator's last output or a recurrent state", o.external);
    require(inputs.count(o.external) == 0, "\"output_external\" names \"{}\", an input of the operator", o.external);
  }
  for (const StateView& v : spec.views) {
    require(v.output != scratch, "\"alias_dst\" names \"{}\", the operator's last output", v.output);
    require(states.count(v.output) == 0, "\"alias_dst\" names \"{}\", a recurrent state", v.output);
  }
}

RecurrentSpec parse_forward(const RecurrentArgs& args, const OperatorDef& def) {
  RecurrentSpec spec = parse_recurrent(args, def, def.input_size());
  check_names_are_free(spec, def);
  return spec;
}

// What the operator's place in its net says about its states and its step blobs.
void look_around(RecurrentScratch& scratch, const BlobCall& call) {
  scratch.in_turn.clear();
  const std::string& own = call.def.output(call.def.output_size() - 1);
  scratch.is_fetched = std::ranges::any_of(call.net.op(), [&](const OperatorDef& op) {
    return op.type() == kBlobFetcher && std::ranges::find(op.input(), own) != op.input().end();
  });
  if (scratch.is_fetched) return;
  for (const std::string& name : states_taken_in_turn(scratch.forward_spec, call.def, call.net))
    scratch.in_turn[name] = {};
}

void preflight(const RecurrentArgs& args, const OperatorDef& def, const Workspace&) { parse_forward(args, def); }

// Makes the states and the program of this run. Returns whether the program is a new one.
bool bind_program(RecurrentScratch& scratch, BlobCall& call, int64_t steps, int64_t batch) {
  if (!choose_segments(scratch, call, steps, batch)) {
    scratch.rebuilder.reset();
    scratch.forward.reset();
  }
  initialise_states(scratch, call, steps, batch);
  const auto links = forward_links(scratch, call.workspace);
  ShapeKey key = shape_key(call, links);
  if (!scratch.forward || key != scratch.forward_key || !scratch.forward->rebind_externals()) {
    compile(scratch, call, links, steps);
    scratch.forward_key = std::move(key);
    return true;
  }
  for (const auto& [name, link] : links) scratch.forward->rebind_link(name, link);
  return false;
}

// The operators of the step net that make matrices of vectors for some shapes.
std::set<int> possible_outer_products(const NetDef& step_net) {
  std::set<int> products;
  for (int i = 0; i < step_net.op_size(); ++i)
    if (const OpSpec* schema = find_op(step_net.op(i).type()); schema && schema->outer_product) products.insert(i);
  return products;
}

// Those that do for the shapes of this run, each element by one product. Where shapes do not fit, the compiler of the
// step net says so.
std::set<int> outer_products(const RecurrentSpec& spec, const RecurrentArgs& args, const BlobCall& call) {
  const std::set<int> possible = possible_outer_products(spec.step_net);
  if (!spec.has_backward || possible.empty()) return {};
  const std::vector<TensorType> in = blob_types(call.in);
  if (!in[0].known || in[0].shape.rank() < 2) return {};
  std::set<int> products;
  try {
    auto known = known_in_step(spec, args, call.def, in);
    const std::vector<TypedOp> typed = infer_ops(spec.step_net, known);
    for (const int i : possible) {
      const TypedOp& t = typed[i];
      if (t.op.spec->outer_product(t.op.args.get(), ShapeCall(t.in, {})) == 0) continue;
      const auto is_less = [&](const TensorType& in) { return 2 * in.shape.size() <= t.out[0].shape.size(); };
      if (t.out[0].known && std::ranges::all_of(t.in, is_less)) products.insert(i);
    }
  } catch (const Error&) {
    return {};
  }
  return products;
}

void run_forward(const RecurrentArgs& args, BlobCall& call) {
  const auto last = call.out.size() - 1;
  require(call.out[last] != nullptr, "the last output, which holds the steps' values, must have a name");
  if (!call.out[last]->holds<RecurrentScratch>()) call.out[last]->emplace<RecurrentScratch>();
  auto& scratch = call.out[last]->get<RecurrentScratch>();
  const Tensor& sequence = tensor_input(call, 0);
  scratch.device = sequence.device();
  if (scratch.forward_of != args.identity) {
    scratch.backward.reset();
    scratch.rebuilder.reset();
    scratch.forward.reset();
    scratch.forward_of.reset();
    scratch.forward_spec = parse_forward(args, call.def);
    if (call.run.anomalies) scratch.forward_spec.disabled_passes = {pass_names().begin(), pass_names().end()};
    look_around(scratch, call);
    scratch.read_ahead = states_read_ahead(scratch.forward_spec);
    scratch.outer_products = outer_products(scratch.forward_spec, args, call);
    adapt_step_nets(scratch.forward_spec, scratch);
    scratch.rebuilt = rebuilt_states(scratch.forward_spec, call.def, call.net);
    scratch.forward_of = args.identity;
  }
  const RecurrentSpec& spec = scratch.forward_spec;
  check_sequence(call.def.input(0), sequence.shape());
  check_layer(args, [&](int64_t i) -> const Shape* {
    const Blob* blob = static_cast<size_t>(i) < call.in.size() ? call.in[static_cast<size_t>(i)] : nullptr;
    return blob && blob->is_tensor() && !blob->empty() ? &std::as_const(*blob).tensor().shape() : nullptr;
  });
  const Shape shape = sequence.shape();
  const int64_t steps = shape[0];
  check_more_sequences(spec, call, shape);
  check_lengths(spec, call, steps, shape[1]);
  const bool is_new = bind_program(scratch, call, steps, shape[1]);
  // Cells that run at the same time would wait for each other after each segment.
  if (is_new && scratch.segments.rebuilds && scratch.forward->has_wavefront()) {
    scratch.rebuilt.clear();
    bind_program(scratch, call, steps, shape[1]);
  }
  scratch.sequence = shape;
  scratch.overwritten = false;
  if (scratch.segments.used) {
    run_segments_forward(scratch, call.run);
  } else {
    scratch.forward->run(call.run);
  }
  const bool in_one = !scratch.segments.used || scratch.segments.rebuilds;  // slabs
  scratch.kept.set(in_one ? scratch.forward->slab_bytes() - output_bytes(spec, *scratch.forward)
                          : scratch.segments.kept_bytes());
  call.run.timestep = 0;
  const RecurrentCounters& per_step = scratch.forward->copied();
  count_recurrent({.copied = per_step.copied * steps, .initial = 0, .spread = per_step.spread * steps});
  show_views(scratch, call.workspace);
  show_outputs(spec, *scratch.forward, call.workspace);
  if (in_one && !scratch.is_fetched) scratch.forward->let_go_of_outside();  // segments run again
}

void run(const RecurrentArgs& args, BlobCall& call) {
  with_place(call, [&] { run_forward(args, call); });
}

// The inputs whose values the backward pass reads: those that the backward step net names, or shows by a link. Outputs
// that it makes again count, too, as nobody may have written anything else there.
std::vector<bool> gradient_reads(const RecurrentSpec& spec, const OperatorDef& def, size_t before, size_t after) {
  const BackwardReads reads = backward_reads(spec);
  std::set<std::string> rows_read;  // what links show
  for (const Link& link : links_for_backward(spec))
    if (reads.values.count(link.internal) > 0) rows_read.insert(link.external);
  const std::set<std::string> written = written_names(spec.backward_net);
  std::set<std::string> rows_written;
  for (const Link& link : spec.links)
    if (written.count(link.internal) > 0) rows_written.insert(link.external);
  std::vector<bool> result(before, true);
  const bool runs_again = spec.memory_budget || (spec.segment_steps > 0 && spec.segment_room >= 0);
  for (const std::string& input : def.input())
    result.push_back(runs_again || reads.values.count(input) > 0 || rows_read.count(input) > 0);
  const NetStorage storage(spec.step_net);
  std::set<std::string> storages_read;
  for (const std::string& name : reads.values) storages_read.insert(storage.of(name));
  // A view shows the rows of a state, which are read under the state's own name.
  for (size_t i = 0; i < after; ++i) {
    bool read = runs_again || i + 1 == after;
    if (i < spec.views.size()) {
      const std::string& state = spec.views[i].state;
      read = read || rows_read.count(state) > 0 || rows_written.count(state) > 0;
    } else if (const size_t output = i - spec.views.size(); output < spec.outputs.size()) {
      const std::string& internal = spec.outputs[output].internal;
      read = read || storages_read.count(storage.of(internal)) > 0 || written.count(internal) > 0;
    }
    result.push_back(read);
  }
  return result;
}

// With the operators alone that the wanted gradients need; `targets` are the inputs that these are of.
RecurrentSpec needed_part(const RecurrentSpec& spec, const OperatorDef& def, const std::vector<int>& targets,
                          const std::vector<bool>& wanted) {
  RecurrentSpec part = spec;
  std::set<std::string> unwanted, needed;
  const size_t params = spec.params.size(), states = spec.states.size();
  for (size_t k = 0; k < targets.size(); ++k)
    if (!wanted[k] && (k == 0 || k > params + states)) unwanted.insert(def.input(targets[k]) + "_grad");
  for (const Link& link : spec.backward_links)
    if (unwanted.count(link.external) == 0) needed.insert(link.internal);
  part.params.clear();
  for (size_t i = 0; i < params; ++i) {
    if (spec.params[i].grad.empty()) return spec;  // a name that is known when it runs
    if (!wanted[i + 1]) continue;
    needed.insert(spec.params[i].grad);
    part.params.push_back(spec.params[i]);
  }
  part.backward_net = needed_operators(spec.backward_net, std::move(needed));
  return part;
}

// The step nets when as much is made again as may be; which products are of vectors is not known before they run.
RecurrentSpec adapted(RecurrentSpec spec) {
  const std::set<int> products = possible_outer_products(spec.step_net);
  activate_gates(spec);
  rematerialize(spec, products);
  return spec;
}

std::vector<Gradient> gradient(Formula& f) {
  const auto& args = f.args<RecurrentArgs>();
  const RecurrentSpec spec = parse_recurrent(args, f.def(), f.inputs());
  std::vector<Gradient> results(f.inputs());
  std::vector<int64_t> present;
  std::vector<Value> inputs;
  for (const int output : spec.outputs_with_grads) {
    const auto views = static_cast<int>(spec.views.size());
    const bool is_view = output < views;
    const std::string& name = is_view ? spec.views[output].output : spec.outputs[output - views].external;
    require(output < f.outputs() && f.def().output(output) == name,
            "\"outputs_with_grads\" has {}, but output {} is not \"{}\", which \"{}\" has there", output, output, name,
            is_view ? "alias_dst" : "output_external");
    if (!f.has_dy_at(output)) continue;  // a missing gradient is zero
    present.push_back(output);
    inputs.push_back(f.dy_at(output));
  }
  if (present.empty()) {
    for (int o = 0; o < f.outputs(); ++o)
      require(!f.has_dy_at(o), "the gradient of \"{}\" is given, but \"outputs_with_grads\" does not have output {}",
              f.def().output(o), o);
    return results;
  }
  require(spec.has_backward, "it has no backward step net, so it only runs forward");
  const size_t before = inputs.size();
  for (int i = 0; i < f.inputs(); ++i) inputs.push_back(f.x_at(i));
  for (int o = 0; o < f.outputs(); ++o) inputs.push_back(f.y_at(o));
  std::vector<int> targets = {0};
  for (const ParamSpecGrad& p : spec.params) targets.push_back(p.input);
  for (const StateSpec& s : spec.states) targets.push_back(s.initial);  // -1 for zeros, which have no gradient
  targets.insert(targets.end(), spec.more_sequences.begin(), spec.more_sequences.end());
  std::vector<bool> wanted;
  for (const int input : targets) wanted.push_back(input >= 0 && f.wants_at(input));
  std::vector<Argument> forwarded = f.forward_args();
  for (Argument& arg : forwarded)
    if (arg.name() == "outputs_with_grads") arg = make_arg("outputs_with_grads", present);
  const std::vector<Value> made = f.ops(kRecurrentNetworkGradient, inputs, forwarded, wanted);
  // As the step nets are, and as they may be adapted when they run.
  const auto reads = [&](const RecurrentSpec& nets) {
    const auto after = static_cast<size_t>(f.outputs());
    return gradient_reads(needed_part(nets, f.def(), targets, wanted), f.def(), before, after);
  };
  std::vector<bool> all = reads(spec);
  const std::vector<bool> more = reads(adapted(spec));
  for (size_t i = 0; i < all.size(); ++i) all[i] = all[i] || more[i];
  f.set_reads(all);
  for (size_t k = 0; k < targets.size(); ++k) {
    if (!wanted[k]) continue;
    Gradient& g = results[targets[k]];
    g = g.defined() ? Gradient(f.op(op_with_role(Role::sum).type, {g.dense, made[k]})) : Gradient(made[k]);
  }
  return results;
}

REGISTER(recurrent_network) {
  OpBuilder<RecurrentArgs> b("RecurrentNetwork");
  declare_recurrent_args(b);
  return b
      .doc(
          "Runs a step net over the timesteps of a sequence. Input 0 is the sequence [T, B, ...]; initial states and "
          "everything that the step net reads by name follow. Outputs are views of the state tensors [T + L, B, D], "
          "and last a scratch object that the gradient needs.")
      .input("inputs", "the sequence, then initial states and what the step net reads, in any order")
      .any_type()
      .variadic()
      .output("outputs", "views of states as the alias arguments say, and the scratch")
      .object()
      .variadic()
      .shape(infer_outputs)
      .preflight(preflight)
      .blobs(run)
      .runs_dry()
      .example_net(kFullFormExample, {"X=3,2,2", "h0=2,2", "p=1,2,2"}, {"h_all", "h_last"})
      .example_net(kFullFormExample, {"X=2,1,1", "h0=1", "p=1,1,1"}, {"h_last"})
      .example_net(kShortFormExample, {"X=3,2,2", "lengths=int32,2:3,1", "W=2,2", "b=2"}, {"h_all", "h_last", "sums"})
      .whole_derivative(gradient);
}

}  // namespace
}  // namespace stepnet
