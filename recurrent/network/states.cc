#include "recurrent/network/states.h"
#include "recurrent/step/block_size.h"

#include <algorithm>

#include "recurrent/network/extensions.h"
#include "recurrent/step/counters.h"

namespace stepnet {

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

}  // namespace stepnet
