#include "recurrent/network/states.h"

#include <algorithm>
#include <map>
#include <optional>

#include "recurrent/step/counters.h"
#include "recurrent/step/ir.h"
#include "stepnet/tensor.h"

namespace stepnet {

bool is_state(const RecurrentSpec& spec, const std::string& name) {
  return std::ranges::find(spec.states, name, &StateSpec::name) != spec.states.end();
}

int64_t initial_rows(const Tensor& initial) { return initial.rank() >= 3 ? initial.dim(0) : 1; }

Shape state_shape(const Shape& initial, int64_t steps, int64_t batch) {
  require(initial.rank() >= 1, "an initial state has shape [D], [B, D] or [L, B, ...], not {}", initial);
  const int lead = std::min(initial.rank() - 1, 2);  // dimensions before those of a sample
  require(lead == 0 || initial[lead - 1] == batch,
          "the initial state {} is for a batch of {}, but the sequence's is {}", initial,
          lead > 0 ? initial[lead - 1] : 0, batch);
  return initial.from(lead).prepend(batch).prepend(steps + (lead == 2 ? initial[0] : 1));
}

namespace {

// Takes out what the operator makes, and what the net around it shows or reads.
void remove_named_outside(std::set<std::string>& names, const OperatorDef& def, const NetDef& net) {
  const auto remove = [&](const auto& list) {
    for (const std::string& name : list) names.erase(name);
  };
  remove(def.output());
  remove(net.external_output());
  for (const OperatorDef& op : net.op()) {
    if (names.empty()) return;
    remove(op.input());
  }
}

// The type and shape of a state over time.
std::pair<DType, Shape> state_type(const RecurrentSpec& spec, const StateSpec& state, const BlobCall& call,
                                   int64_t steps, int64_t batch) {
  if (state.initial >= 0) {
    const Tensor& initial = tensor_input(call, state.initial);
    const Shape shape = state_shape(initial.shape(), steps, batch);
    if (spec.reverse && shape[0] != steps + 1)
      fail("the initial state \"{}\" is {}, but a network that runs in reverse starts from one row",
           call.def.input(state.initial), initial);
    return {initial.dtype(), shape};
  }
  std::vector<DType> types;
  for (const Blob* blob : call.in)
    if (blob && blob->is_tensor()) types.push_back(blob->tensor().dtype());
  return {zero_state_type(types), zero_state_shape(state, steps, batch)};
}

// `initial` is undefined for zeros.
void write_initial_rows(const Tensor& initial, Tensor rows) {
  if (!initial.defined()) return rows.fill_zero();
  if (initial.rank() >= 2) {
    rows = rows.reshaped(initial.shape());
    if (rows.raw() != initial.raw()) rows.copy_from(initial);
    return;
  }
  rows = rows.row(0);
  for (int64_t b = 0; b < rows.dim(0); ++b) {
    Tensor row = rows.row(b);
    row.copy_from(initial);
  }
}

// Where the step net reads the state that it makes, that may be another cell of a stack, some blocks behind: how many
// rows it can be behind, whole blocks, or 0.
int64_t rows_ahead(const RecurrentScratch& scratch, const StateSpec& state, int64_t initial, int64_t steps,
                   int64_t batch) {
  const RecurrentSpec& spec = scratch.forward_spec;
  if (spec.reverse || !spec.runs_pass("split") || scratch.read_ahead.count(state.name) == 0) return 0;
  const int64_t block = staged_block(batch, std::max<int64_t>(std::min(forward_block(scratch, batch), steps), 1));
  return block * (static_cast<int64_t>(spec.states.size()) + 1 + initial / block);
}

// Of which nobody outside sees more than the last row, and the step net single rows.
std::set<std::string> hidden_states(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net) {
  std::set<std::string> names;
  for (const StateSpec& state : spec.states) names.insert(state.name);
  remove_named_outside(names, def, net);
  for (const Link& link : spec.links)
    if (link.window != 1) names.erase(link.external);
  for (const StateView& view : spec.views)
    if (view.offset != -1) names.erase(view.state);
  return names;
}

}  // namespace

std::set<std::string> states_taken_in_turn(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net) {
  return spec.has_backward ? std::set<std::string>{} : hidden_states(spec, def, net);
}

std::set<std::string> states_in_segments(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net) {
  return spec.has_backward ? hidden_states(spec, def, net) : std::set<std::string>{};
}

std::set<std::string> states_read_ahead(const RecurrentSpec& spec) {
  std::set<std::string> read, states;
  for (const OperatorDef& op : spec.step_net.op()) read.insert(op.input().begin(), op.input().end());
  for (const Link& link : spec.links)
    if (link.offset > 0 && read.count(link.internal) > 0) states.insert(link.external);
  return states;
}

std::set<std::string> gradients_taken_in_turn(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net) {
  std::set<std::string> names;
  if (!spec.rename.empty()) return names;
  for (const StateSpec& state : spec.states) names.insert(state.name + "_grad");
  remove_named_outside(names, def, net);
  for (const OperatorDef& op : spec.backward_net.op())
    for (const auto* blobs : {&op.input(), &op.output()})
      for (const std::string& name : *blobs) names.erase(name);
  for (const Link& link : spec.links) names.erase(link.external);
  for (const Link& link : spec.backward_links)
    if (link.window != 1 || (link.offset != 0 && link.offset != 1)) names.erase(link.external);
  return names;
}

const Tensor& tensor_input(const BlobCall& call, int i) {
  require(call.in[i] != nullptr, "input {} is missing", i);
  const Tensor& tensor = std::as_const(*call.in[i]).tensor();
  require(tensor.defined(), "the input \"{}\" holds nothing yet", call.def.input(i));
  return tensor;
}

Tensor state_over_time(const RecurrentScratch& scratch, const Workspace& workspace, const std::string& state) {
  Tensor over_time;
  const Segments& segments = scratch.segments;
  if (const auto part = segments.states.find(state); segments.used && part != segments.states.end()) {
    const Tensor& work = segments.work.states.at(state);
    over_time.set_type(work.dtype(), work.shape().with(0, part->second.rows));
  } else if (const auto turn = scratch.in_turn.find(state); turn != scratch.in_turn.end()) {
    const Tensor& latest = turn->second.latest;
    over_time.set_type(latest.dtype(), latest.shape().with(0, turn->second.rows));
  } else {
    over_time = workspace.fetch(state);
  }
  return over_time;
}

namespace {

// A segment's rows of the state; the first ones are where segment 0 starts.
Tensor& segment_of_state(Segments& segments, const std::string& name, Shape& shape) {
  Segments::State& state = segments.states.at(name);
  state.rows = shape[0];
  state.lead = shape[0] - segments.total;
  shape = shape.with(0, segments.steps + state.lead);
  return segments.work.states[name];
}

// By state; undefined for zeros.
std::vector<Tensor> initial_values(const RecurrentSpec& spec, const BlobCall& call) {
  std::vector<Tensor> values;
  values.reserve(spec.states.size());
  for (const StateSpec& state : spec.states)
    values.push_back(state.initial < 0 ? Tensor() : tensor_input(call, state.initial));
  return values;
}

// By storage: the initial values that lie there.
using ValuesInStorages = std::multimap<const void*, size_t>;

ValuesInStorages values_in_storages(const std::vector<Tensor>& initial) {
  ValuesInStorages values;
  for (size_t i = 0; i < initial.size(); ++i)
    if (initial[i].storage()) values.emplace(initial[i].storage().get(), i);
  return values;
}

// Before state `index` gets its first rows: copies initial values that lie in its tensor, where a run before has left
// them. A single row of its own stays where it is until it is copied.
void save_values_in(const Tensor& state, size_t index, ValuesInStorages& values, std::vector<Tensor>& initial) {
  const auto [begin, end] = values.equal_range(state.storage().get());
  for (auto value = begin; value != end; ++value) {
    const size_t i = value->second;
    if (i > index || (i == index && initial_rows(initial[i]) > 1)) initial[i] = initial[i].clone();
  }
  values.erase(begin, end);
}

}  // namespace

void initialise_states(RecurrentScratch& scratch, BlobCall& call, int64_t steps, int64_t batch) {
  const RecurrentSpec& spec = scratch.forward_spec;
  std::vector<Tensor> initial = initial_values(spec, call);
  ValuesInStorages in_storages = values_in_storages(initial);
  for (size_t i = 0; i < spec.states.size(); ++i) {
    const StateSpec& state = spec.states[i];
    auto [dtype, shape] = state_type(spec, state, call, steps, batch);
    const auto turn = scratch.in_turn.find(state.name);
    const int64_t count = shape[0] - steps;
    const bool in_segments = scratch.segments.used && scratch.segments.states.count(state.name) > 0;
    Tensor& whole = in_segments                     ? segment_of_state(scratch.segments, state.name, shape)
                    : turn == scratch.in_turn.end() ? call.workspace.create(state.name).tensor()
                                                    : turn->second.latest;
    if (turn != scratch.in_turn.end()) {
      turn->second.rows = shape[0];
      const int64_t ahead = rows_ahead(scratch, state, count, steps, batch);
      turn->second.kept = ahead > 0 ? count : 0;
      shape = shape.with(0, std::min(shape[0], count + std::max<int64_t>(ahead, 1)));
    }
    if (!(whole.storage() && whole.dtype() == dtype && whole.shape() == shape))
      whole = Tensor::empty(dtype, shape, scratch.device);
    const Tensor first = in_segments ? scratch.segments.rows_before(scratch.segments.work, state.name, 0)
                                     : whole.rows(spec.reverse ? steps % shape[0] : 0, count);
    save_values_in(whole, i, in_storages, initial);
    write_initial_rows(initial[i], first);
    count_recurrent({.copied = 0, .initial = static_cast<int64_t>(first.bytes()), .spread = 0});
    whole.mark_written();
  }
}

void show_views(const RecurrentScratch& scratch, Workspace& workspace) {
  for (const StateView& view : scratch.forward_spec.views) {
    const Tensor over_time = state_over_time(scratch, workspace, view.state);
    const RowRange rows = shown_rows(view, over_time, scratch.forward_spec.reverse);
    Tensor& shown = workspace.create(view.output).tensor();
    const Segments& segments = scratch.segments;
    if (segments.used && segments.states.count(view.state) > 0) {
      // Segments that run again would write over it.
      const Tensor& work = segments.work.states.at(view.state);
      shown.copy_from(work.rows(rows.first - segments.range(segments.count() - 1).first, 1));
    } else if (const auto turn = scratch.in_turn.find(view.state); turn != scratch.in_turn.end()) {
      shown = turn->second.latest.rows(turn->second.place(rows.first), 1);
    } else {
      shown = over_time.rows(rows.first, rows.count);
    }
  }
}

namespace {

Tensor output_slab(const StepOutput& output, const StepProgram& program) {
  const Tensor slab = program.slab(output.internal);
  if (!slab.defined()) fail("the output \"{}\" has no rows of its own in the step net", output.internal);
  return slab;
}

}  // namespace

DType zero_state_type(std::span<const DType> inputs) {
  for (const DType type : inputs)
    if (is_floating(type)) return type;
  return DType::float32;
}

Shape zero_state_shape(const StateSpec& state, int64_t steps, int64_t batch) {
  Shape shape{steps + 1, batch};
  for (const int64_t size : state.size) shape.push_back(size);
  return Shape(shape.dims());  // made anew, so that its size is checked
}

namespace {

// By state, as far as the arguments can be right.
std::vector<StateSpec> zero_states(const RecurrentArgs& args) {
  std::vector<StateSpec> states;
  auto size = args.zero_state_sizes.begin();
  for (const int64_t rank : args.zero_state_ranks) {
    if (rank < 0 || rank > Shape::kMaxRank - 2 || rank > args.zero_state_sizes.end() - size) break;
    states.emplace_back().size.assign(size, size + rank);
    size += rank;
  }
  return states;
}

// What states that start at zero have; nothing if an input is not known yet.
std::optional<DType> zero_type(const ShapeCall& call) {
  std::vector<DType> types;
  for (int i = 0; i < call.inputs(); ++i) {
    if (!call.known(i) && call.has(i)) return {};
    types.push_back(call.dtype(i));
  }
  return zero_state_type(types);
}

}  // namespace

std::vector<TensorType> infer_states(const RecurrentArgs& args, const ShapeCall& call) {
  const Shape& sequence = call.shape(0);
  const std::vector<StateSpec> zero = zero_states(args);
  const std::optional<DType> type = zero_type(call);
  std::vector<TensorType> types(std::min(args.recurrent_states.size(), args.initial_recurrent_state_ids.size()));
  for (size_t s = 0; s < types.size(); ++s) {
    const int64_t id = args.initial_recurrent_state_ids[s];
    if (id >= 0 && id < call.inputs() && call.known(static_cast<int>(id)))
      types[s] = TensorType::of(call.dtype(static_cast<int>(id)),
                                state_shape(call.shape(static_cast<int>(id)), sequence[0], sequence[1]));
    if (id < 0 && s < zero.size() && type)
      types[s] = TensorType::of(*type, zero_state_shape(zero[s], sequence[0], sequence[1]));
  }
  return types;
}

std::map<std::string, TensorType> known_in_step(const RecurrentSpec& spec, const RecurrentArgs& args,
                                                const OperatorDef& def, std::span<const TensorType> in) {
  std::map<std::string, TensorType> known, outside;
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i].known) outside[def.input(static_cast<int>(i))] = in[i];
  const std::vector<TensorType> states = infer_states(args, ShapeCall(in, {}));
  for (size_t i = 0; i < spec.states.size(); ++i)
    if (states[i].known) outside[spec.states[i].name] = states[i];
  known = outside;
  for (const Link& link : spec.links) {
    const auto it = outside.find(link.external);
    if (it == outside.end()) continue;
    known[link.internal] = TensorType::of(it->second.dtype, it->second.shape.with(0, link.window));
  }
  known[spec.timestep] = TensorType::of(DType::int32, {1});
  return known;
}

namespace {

// `i`: of w_ih, w_hh, b_ih and b_hh; `inputs`: the width of the sequence, or -1.
void check_layer_weight(const RecurrentArgs& args, int i, const Shape& given, int64_t inputs) {
  static const char* const kNames[] = {"w_ih", "w_hh", "b_ih", "b_hh"};
  const bool is_bias = i >= 2;
  int64_t rows = 0;
  if (__builtin_mul_overflow(args.layer_gates, args.layer_hidden, &rows))
    fail("argument \"hidden\" is {}, which is too large", args.layer_hidden);
  const int64_t columns = i == 0 ? inputs : args.layer_hidden;
  const bool rows_fit = given.rank() >= 1 && given[0] == rows;
  if (rows_fit && (is_bias || columns < 0 || given.size_between(1, given.rank()) == columns)) return;
  const std::string needed =
      is_bias ? fmt::format("[{}]", rows) : fmt::format("[{}, {}]", rows, columns < 0 ? "I" : std::to_string(columns));
  const std::string why = i == 0 && rows_fit ? "the sequence has rows of " + std::to_string(inputs) + " values"
                                             : fmt::format("argument \"hidden\" is {}", args.layer_hidden);
  std::string fix;
  if (!rows_fit && given.rank() >= 1 && given[0] > 0 && given[0] % args.layer_gates == 0)
    fix = fmt::format("set hidden to {}, or give weights of {} rows, {} for each of {}", given[0] / args.layer_gates,
                      rows, args.layer_gates, args.layer_hidden);
  throw Error(fmt::format("{}, so {} must be {}, but is {}", why, kNames[i], needed, given), fix);
}

}  // namespace

void check_layer(const RecurrentArgs& args, const std::function<const Shape*(int64_t)>& shape_of) {
  if (args.layer_hidden == 0) return;
  const Shape* x = shape_of(0);
  if (x && x->rank() < 3)
    throw Error(fmt::format("the sequence must be [T, B, I], but is {}", *x),
                x->rank() == 2 ? fmt::format("{0} timesteps of one sample are [{0}, 1, {1}]", (*x)[0], (*x)[1]) : "");
  for (const int64_t id : args.initial_recurrent_state_ids) {
    const Shape* initial = id < 0 ? nullptr : shape_of(id);
    if (initial && (initial->rank() < 1 || (*initial)[initial->rank() - 1] != args.layer_hidden))
      fail("argument \"hidden\" is {}, so an initial state must be {} wide, but is {}", args.layer_hidden,
           args.layer_hidden, *initial);
  }
  const int64_t inputs = x ? x->size_between(2, x->rank()) : -1;
  for (int i = 0; i < static_cast<int>(std::min<size_t>(args.layer_weights.size(), 4)); ++i)
    if (const int64_t id = args.layer_weights[i]; id >= 0)
      if (const Shape* weight = shape_of(id)) check_layer_weight(args, i, *weight, inputs);
}

void infer_outputs(const RecurrentArgs& args, ShapeCall& call) {
  check_layer(args, [&](int64_t i) {
    const bool known = i < call.inputs() && call.known(static_cast<int>(i));
    return known ? &call.shape(static_cast<int>(i)) : nullptr;
  });
  if (!call.known(0)) return;
  require(call.shape(0).rank() >= 2, "the sequence must be [T, B, ...], not {}", call.shape(0));
  const size_t count = std::min({args.alias_src.size(), args.alias_offset.size(), static_cast<size_t>(call.outputs())});
  std::map<std::string, TensorType> states;
  const std::vector<TensorType> types = infer_states(args, call);
  for (size_t s = 0; s < types.size(); ++s) states[args.recurrent_states[s]] = types[s];
  for (size_t v = 0; v < count; ++v) {
    const auto state = states.find(args.alias_src[v]);
    if (state == states.end() || !state->second.known) continue;
    const TensorType& whole = state->second;
    const int64_t rows = whole.shape[0];
    const int64_t left_out = args.alias_offset[v] >= 0 ? args.alias_offset[v] : rows + args.alias_offset[v];
    require(left_out >= 0 && left_out <= rows, "\"alias_offset\" is {}, but the state \"{}\" has {} rows",
            args.alias_offset[v], args.alias_src[v], rows);
    call.set(static_cast<int>(v), whole.dtype, whole.shape.with(0, rows - left_out));
  }
}

RowRange shown_rows(const StateView& view, const Tensor& state, bool reverse) {
  const int64_t rows = state.dim(0);
  const int64_t left_out = view.offset >= 0 ? view.offset : rows + view.offset;
  if (left_out < 0 || left_out > rows)
    fail("\"alias_offset\" of \"{}\" is {}, but the state \"{}\" is {}", view.output, view.offset, view.state, state);
  return {reverse ? 0 : left_out, rows - left_out};
}

void check_more_sequences(const RecurrentSpec& spec, const BlobCall& call, const Shape& first) {
  for (const int i : spec.more_sequences) {
    const Shape& shape = tensor_input(call, i).shape();
    if (shape.rank() < 2) fail("the sequence \"{}\" must be [T, B, ...], not {}", call.def.input(i), shape);
    if (shape[0] != first[0] || shape[1] != first[1])
      fail("the sequence \"{}\" is {}, but \"{}\" has {} timesteps and a batch of {}", call.def.input(i), shape,
           call.def.input(0), first[0], first[1]);
  }
}

void check_lengths(const RecurrentSpec& spec, const BlobCall& call, int64_t steps, int64_t batch) {
  if (spec.lengths < 0) return;
  const Tensor& lengths = tensor_input(call, spec.lengths);
  const std::string& name = call.def.input(spec.lengths);
  const Shape& sequence = tensor_input(call, 0).shape();
  if (sequence.rank() == 2 && lengths.rank() == 1 && lengths.dim(0) != batch)
    throw Error(
        fmt::format("the sequence \"{}\" is {}, {} timesteps of {} samples, but the lengths \"{}\" are those of {}",
                    call.def.input(0), sequence, steps, batch, name, lengths.dim(0)),
        fmt::format("vectors over time are [T, B, I]: those of one sample [{}, 1, {}]", steps, batch));
  if (lengths.dtype() != DType::int32 || !(lengths.shape() == Shape{batch}))
    fail("the lengths \"{}\" must be int32[{}], one for each sample, but are {}", name, batch, lengths);
  if (lengths.is_dry()) return;
  const Tensor values = on_device(lengths, {});
  for (int64_t b = 0; b < batch; ++b)
    if (const int32_t length = values.data<int32_t>()[b]; length < 0 || length > steps)
      fail("the length of sample {} in \"{}\" is {}; it must be from 0 to the {} timesteps of the sequence", b, name,
           length, steps);
}

void check_outputs(const RecurrentSpec& spec, const StepProgram& program, int64_t batch) {
  for (const StepOutput& output : spec.outputs) {
    const Tensor slab = output_slab(output, program);
    const Shape row = slab.shape().from(1);
    if (row.rank() < 2 || row[0] != 1 || row[1] != batch)
      fail("\"{}\", a row of the output \"{}\", must be [1, B, ...] with a batch of {}, but the step net makes it {}{}",
           output.internal, output.external, batch, dtype_name(slab.dtype()), row);
  }
}

Tensor output_over_time(const Tensor& slab) { return slab.reshaped(slab.shape().from(2).prepend(slab.dim(0))); }

void show_outputs(const RecurrentSpec& spec, const StepProgram& program, Workspace& workspace) {
  for (const StepOutput& output : spec.outputs)
    workspace.create(output.external).tensor() = output_over_time(output_slab(output, program));
}

int64_t output_bytes(const RecurrentSpec& spec, const StepProgram& program) {
  int64_t bytes = 0;
  for (const StepOutput& output : spec.outputs) bytes += static_cast<int64_t>(output_slab(output, program).bytes());
  return bytes;
}

}  // namespace stepnet
