#include "recurrent/states.h"

#include <algorithm>

#include "recurrent/counters.h"

namespace stepnet {

int64_t initial_rows(const Tensor& initial) { return initial.rank() == 3 ? initial.dim(0) : 1; }

Shape state_shape(const Shape& initial, int64_t steps, int64_t batch) {
  require(initial.rank() >= 1 && initial.rank() <= 3, "an initial state has shape [D], [B, D] or [L, B, D], not {}",
          initial);
  const int64_t width = initial[initial.rank() - 1];
  const int64_t rows = initial.rank() == 3 ? initial[0] : 1;
  if (initial.rank() >= 2)
    require(initial[initial.rank() - 2] == batch, "the initial state {} is for a batch of {}, but the sequence's is {}",
            initial, initial[initial.rank() - 2], batch);
  return {steps + rows, batch, width};
}

namespace {

bool is_named_outside(const std::string& state, const OperatorDef& def, const NetDef& net) {
  auto names = [&](const auto& list) { return std::ranges::find(list, state) != list.end(); };
  if (names(def.output()) || names(net.external_output())) return true;
  return std::ranges::any_of(net.op(), [&](const OperatorDef& op) { return names(op.input()); });
}

void write_initial_rows(const Tensor& initial, Tensor& whole) {
  if (initial.rank() >= 2) {
    Tensor rows = whole.rows(0, initial_rows(initial)).reshaped(initial.shape());
    if (rows.raw() != initial.raw()) rows.copy_from(initial);
    return;
  }
  const Tensor first = whole.row(0);
  for (int64_t b = 0; b < first.dim(0); ++b) {
    Tensor row = first.row(b);
    row.copy_from(initial);
  }
}

}  // namespace

std::set<std::string> states_taken_in_turn(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net) {
  std::set<std::string> names;
  if (spec.has_backward) return names;
  for (const StateSpec& state : spec.states)
    if (!is_named_outside(state.name, def, net)) names.insert(state.name);
  for (const Link& link : spec.links)
    if (link.window != 1) names.erase(link.external);
  for (const StateView& view : spec.views)
    if (view.offset != -1) names.erase(view.state);
  return names;
}

const Tensor& tensor_input(const BlobCall& call, int i) {
  require(call.in[i] != nullptr, "input {} is missing", i);
  const Tensor& tensor = std::as_const(*call.in[i]).tensor();
  require(tensor.defined(), "the input \"{}\" holds nothing yet", call.def.input(i));
  return tensor;
}

void initialise_states(RecurrentScratch& scratch, BlobCall& call, int64_t steps, int64_t batch) {
  for (const StateSpec& state : scratch.forward_spec.states) {
    const Tensor& initial = tensor_input(call, state.initial);
    Shape shape = state_shape(initial.shape(), steps, batch);
    const auto turn = scratch.in_turn.find(state.name);
    Tensor& whole = turn == scratch.in_turn.end() ? call.workspace.create(state.name).tensor() : turn->second.latest;
    if (turn != scratch.in_turn.end()) {
      turn->second.rows = shape[0];
      shape = shape.with(0, std::min(shape[0], shape[0] - steps + 1));
    }
    const Tensor held = initial;  // may be a view of this very state from the run before
    if (!(whole.defined() && whole.dtype() == held.dtype() && whole.shape() == shape))
      whole = Tensor::empty(held.dtype(), shape);
    const int64_t first = held.rank() == 3 ? held.dim(0) : 1;
    write_initial_rows(held, whole);
    count_recurrent({.copied = 0,
                     .initial = first * batch * shape[2] * static_cast<int64_t>(dtype_size(held.dtype())),
                     .spread = 0});
    whole.mark_written();
  }
}

void show_views(const RecurrentScratch& scratch, Workspace& workspace) {
  for (const StateView& view : scratch.forward_spec.views) {
    const auto turn = scratch.in_turn.find(view.state);
    const bool all = turn == scratch.in_turn.end();
    const Tensor& whole = all ? workspace.fetch(view.state) : turn->second.latest;
    const int64_t rows = all ? whole.dim(0) : turn->second.rows;
    const int64_t start = view.offset >= 0 ? view.offset : rows + view.offset;
    if (start < 0 || start > rows)
      fail("\"alias_offset\" of \"{}\" is {}, but the state \"{}\" is {}{}", view.output, view.offset, view.state,
           dtype_name(whole.dtype()), whole.shape().with(0, rows));
    workspace.create(view.output).tensor() =
        all ? whole.rows(start, rows - start) : whole.rows(start % whole.dim(0), 1);
  }
}

}  // namespace stepnet
