// A pass over a StepProgram: a sum disappears where its terms can be made in one place. The first term is written where
// the sum would stand, and operators that can add to what is there add the others: of an LSTM's gates, the product with
// the hidden state is added to the product with the input.
#include <algorithm>

#include "recurrent/step_program.h"

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
  slots_[op.out_slots[output]]->unused = true;
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

void StepProgram::fold_sums() {
  for (size_t i = 0; i < ops_.size();) {
    if (fold_sum(i)) {
      ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

}  // namespace stepnet
