// A pass over a StepProgram: a sum disappears where its terms can be made in one place. The first term is written where
// the sum would stand, and operators that can add to what is there add the others: of an LSTM's gates, the product with
// the hidden state is added to the product with the input. Where only the last term comes from such an operator, the
// others are added up before it: of a GRU's state, the gradient that does not go through a product.
#include <algorithm>

#include "recurrent/step/program.h"

namespace stepnet {

using Kind = StepSlot::Kind;

// The operator that makes the term, if only it writes and only the sum reads it.
std::optional<size_t> StepProgram::term_writer(int slot, size_t sum) const {
  if (slot < 0) return std::nullopt;
  const StepSlot& term = *slots_[slot];
  if (term.kind != Kind::scratch || !term.typed || term.reshaped || is_total(slot)) return std::nullopt;
  if (!(term.tensor.shape() == slots_[ops_[sum]->out_slots[0]]->tensor.shape())) return std::nullopt;
  for (size_t i = 0; i < ops_.size(); ++i)
    if (std::ranges::count(ops_[i]->in_slots, slot) != (i == sum ? 1 : 0)) return std::nullopt;
  const std::vector<size_t> by = writers(slot);
  if (by.size() != 1 || by[0] > sum || !ops_[by[0]]->kernel || ops_[by[0]]->plain_copy) return std::nullopt;
  if (ops_[by[0]]->stage != ops_[sum]->stage) return std::nullopt;
  return by[0];
}

// The operator's output that is the term.
size_t StepProgram::output_of(const Op& op, int slot) const {
  return static_cast<size_t>(std::ranges::find(op.out_slots, slot) - op.out_slots.begin());
}

// Lets the operator write its output to `result`, or add it there.
void StepProgram::redirect(Op& op, size_t output, int result, bool add) {
  if (add) op.accumulate |= 1U << output;
  if (op.out_slots[output] != result) slots_[op.out_slots[output]]->unused = true;
  op.out_slots[output] = result;
}

// A sum that is written over one of its terms: the others can be added there when they are made.
bool StepProgram::fold_in_place(size_t index) {
  const Op& sum = *ops_[index];
  const int result = sum.out_slots[0];
  if (std::ranges::count(sum.in_slots, result) != 1 || sum.phase != Phase::step || is_total(result)) return false;
  size_t first = index;  // from here on the term that is overwritten is there, and nobody reads it
  while (first > 0 && std::ranges::count(ops_[first - 1]->in_slots, result) == 0 &&
         std::ranges::count(ops_[first - 1]->out_slots, result) == 0)
    --first;
  if (first == 0 || std::ranges::count(ops_[first - 1]->out_slots, result) == 0) return false;
  std::vector<std::pair<Op*, size_t>> adding;
  for (const int s : sum.in_slots) {
    if (s == result) continue;
    const std::optional<size_t> writer = term_writer(s, index);
    if (!writer || *writer < first || ops_[*writer]->phase != Phase::step) return false;
    const size_t o = output_of(*ops_[*writer], s);
    if (!ops_[*writer]->op.spec->output_spec(static_cast<int>(o))->accumulates) return false;
    adding.emplace_back(ops_[*writer].get(), o);
  }
  for (const auto& [op, o] : adding) redirect(*op, o, result, true);
  return true;
}

bool StepProgram::fold_sum(size_t index) {
  const Op& sum = *ops_[index];
  if (!sum.op.spec->sums_inputs || !sum.kernel || sum.in_slots.size() < 2) return false;
  const int result = sum.out_slots[0];
  if (std::ranges::count(sum.in_slots, result) > 0) return fold_in_place(index);
  const StepSlot& place = *slots_[result];
  if ((place.kind != Kind::scratch && place.kind != Kind::slab) || place.reshaped || is_total(result)) return false;
  if (writers(result).front() != index) return false;
  std::vector<size_t> terms;
  for (const int s : sum.in_slots) {
    const std::optional<size_t> writer = term_writer(s, index);
    if (!writer || std::ranges::count(terms, *writer) > 0) return false;
    terms.push_back(*writer);
  }
  // Those that run before the block write before all others.
  std::ranges::sort(terms);
  std::stable_partition(terms.begin(), terms.end(), [&](size_t t) { return ops_[t]->phase == Phase::before; });
  const auto has_phase = [&](Phase phase) { return [this, phase](size_t t) { return ops_[t]->phase == phase; }; };
  if (sum.phase == Phase::after && !std::ranges::all_of(terms, has_phase(Phase::after))) return false;
  if (sum.phase != Phase::after && std::ranges::any_of(terms, has_phase(Phase::after))) return false;
  const auto output = [&](size_t t) {
    return static_cast<size_t>(std::ranges::find_first_of(ops_[t]->out_slots, sum.in_slots) -
                               ops_[t]->out_slots.begin());
  };
  const auto adds = [&](size_t t) { return ops_[t]->op.spec->output_spec(static_cast<int>(output(t)))->accumulates; };
  if (!std::all_of(terms.begin() + 1, terms.end(), adds)) return false;
  for (const size_t t : terms) redirect(*ops_[t], output(t), result, t != terms.front());
  return true;
}

// Whether the slots may show the same row of a tensor in a timestep.
bool StepProgram::may_show_same_row(int slot, int other) const {
  if (slot < 0 || other < 0) return false;
  if (slot == other) return true;
  const StepSlot &a = *slots_[slot], &b = *slots_[other];
  if (a.kind != Kind::link || b.kind != Kind::link || a.whole.storage() != b.whole.storage()) return false;
  return first_row(slot) < 0 || first_row(slot) == first_row(other);
}

// The operator before the sum that writes a term, with none after it.
std::optional<size_t> StepProgram::last_term_writer(const Op& sum, size_t index) const {
  while (index-- > 0)
    if (std::ranges::find_first_of(ops_[index]->out_slots, sum.in_slots) != ops_[index]->out_slots.end()) return index;
  return std::nullopt;
}

// Whether the sum of the other terms can stand in the result while the product makes its own.
bool StepProgram::may_hold_the_rest(const Op& sum, size_t index, size_t product, int term) const {
  const int result = sum.out_slots[0];
  const auto shows_result = [&](int s) { return may_show_same_row(result, s) && s != term; };
  for (size_t i = product; i < index; ++i)
    if (std::ranges::any_of(ops_[i]->in_slots, [&](int s) { return may_show_same_row(result, s); }) ||
        std::ranges::any_of(ops_[i]->out_slots, shows_result))
      return false;
  const auto fits = [&](int s) {
    return s >= 0 && slots_[s]->tensor.shape() == slots_[result]->tensor.shape() &&
           slots_[s]->tensor.dtype() == slots_[result]->tensor.dtype() && !slots_[s]->reshaped;
  };
  return std::ranges::all_of(sum.in_slots, fits);
}

void StepProgram::drop_term(Op& sum, int slot) {
  sum.in_slots.erase(std::ranges::find(sum.in_slots, slot));
  OperatorDef def;  // of an operator with any number of terms
  def.set_type(op_with_role(Role::sum).type);
  def.set_name(sum.op.def.name());
  for (const int s : sum.in_slots) def.add_input(slots_[s]->name);
  def.add_output(slots_[sum.out_slots[0]]->name);
  sum.op = bind_op(def, net_name_, sum.op.index, sum.op.device);
  sum.op.net_name = spec_.random_name;
  const StepSlot& result = *slots_[sum.out_slots[0]];
  const std::vector<TensorType> in(sum.in_slots.size(), TensorType::of(result.tensor.dtype(), result.tensor.shape()));
  sum.kernel = &pick_kernel(sum.op, in, std::span(in).first(1));
}

// Moves the sum in front of the operator that makes its last term, which is then added to it. Returns its new place.
std::optional<size_t> StepProgram::fold_last_term(size_t index) {
  Op& sum = *ops_[index];
  if (!sum.op.spec->sums_inputs || !sum.kernel || sum.in_slots.size() < 2 || sum.phase != Phase::step) return {};
  const int result = sum.out_slots[0];
  const std::optional<size_t> last = last_term_writer(sum, index);
  if (!last || is_total(result) || slots_[result]->reshaped) return {};
  Op& product = *ops_[*last];
  const size_t output =
      static_cast<size_t>(std::ranges::find_first_of(product.out_slots, sum.in_slots) - product.out_slots.begin());
  const int term = product.out_slots[output];
  if (product.phase != Phase::step || product.stage != sum.stage || (product.accumulate >> output & 1) != 0) return {};
  if (!product.op.spec->output_spec(static_cast<int>(output))->accumulates) return {};
  if (std::ranges::count(sum.in_slots, term) != 1 || (term != result && term_writer(term, index) != last)) return {};
  if (term == result && writers(result) != std::vector<size_t>{*last, index}) return {};
  if (!may_hold_the_rest(sum, index, *last, term)) return {};
  redirect(product, output, result, true);
  drop_term(sum, term);
  std::rotate(ops_.begin() + static_cast<std::ptrdiff_t>(*last), ops_.begin() + static_cast<std::ptrdiff_t>(index),
              ops_.begin() + static_cast<std::ptrdiff_t>(index) + 1);
  return last;
}

void StepProgram::fold_sums() {
  for (size_t i = 0; i < ops_.size();) {
    if (fold_sum(i)) {
      ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (const std::optional<size_t> moved = fold_last_term(i)) {
      i = *moved;
    } else {
      ++i;
    }
  }
}

}  // namespace stepnet
