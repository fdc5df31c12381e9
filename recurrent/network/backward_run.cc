#include "recurrent/network/backward.h"

#include <algorithm>

#include "recurrent/network/extensions.h"

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
    const std::string name = b.state_gradient(state);
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
    const std::string name = b.state_gradient(state);
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
  for (const auto& [input, output] : b.sequences()) {
    const Tensor& sequence = b.forward_input(input);
    const std::string name = b.sequence_gradient(input);
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
  std::map<std::string, const StateSpec*> states;
  for (const StateSpec& state : b.spec.states) states[state.name] = &state;
  for (size_t k = 0; k < b.spec.outputs_with_grads.size(); ++k) {
    const auto output = static_cast<size_t>(b.spec.outputs_with_grads[k]);
    if (output >= b.spec.views.size()) continue;
    const StateView& view = b.spec.views[output];
    const StateSpec* const state = states.at(view.state);
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
  std::map<size_t, size_t> given;  // by output: the last place among those with gradients
  for (size_t k = 0; k < b.spec.outputs_with_grads.size(); ++k)
    given[static_cast<size_t>(b.spec.outputs_with_grads[k])] = k;
  for (size_t i = 0; i < b.spec.outputs.size(); ++i) {
    const StepOutput& output = b.spec.outputs[i];
    const Tensor slab = output_over_time(b.scratch.slab(output.internal));
    Tensor& gradient = b.gradients[b.renamed(output.external + "_grad")];
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
    if (initial.rank() >= 2) {
      out->tensor() = gradient.reshaped(initial.shape());
      continue;
    }
    out->tensor().resize(initial.dtype(), initial.shape(), b.scratch.device);
    out->tensor().fill_zero();
    if (!is_floating(initial.dtype())) continue;
    for (int64_t r = 0; r < b.batch; ++r) add_rows(gradient.row(0).row(r), out->tensor());
  }
}

}  // namespace stepnet
