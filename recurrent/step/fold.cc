// A pass over a StepIr: a sum disappears where its terms can be made in one place. The first term is written where
// the sum would stand, and operators that can add to what is there add the others: of an LSTM's gates, the product with
// the hidden state is added to the product with the input. Where only the last terms come from such operators, the
// others are added up before them: of a GRU's state, the gradient that does not go through a product.
#include <algorithm>
#include <limits>

#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

namespace {

// The operators while sums are folded: where they stand, and who reads and writes each slot. That is kept up to date,
// because a search of the program for each term would take the square of its length.
class Folds {
 public:
  explicit Folds(StepIr& ir);
  void run();

 private:
  // Operators do not move but for sums that go in front of another one: these have its number, and their own turn.
  struct At {
    size_t number = 0, turn = std::numeric_limits<size_t>::max();
    auto operator<=>(const At&) const = default;
  };
  using Users = std::map<At, size_t>;
  // A term of a sum, and the last operator in front of the sum that writes it.
  struct Term {
    At at;
    size_t writer;
    int slot;
  };

  StepOp& op(size_t index) const { return *ir_.ops[index]; }
  StepSlot& slot(int index) const { return *ir_.slots[index]; }
  static bool any_between(const Users& users, At first, At end) {
    const auto found = users.lower_bound(first);
    return found != users.end() && found->first < end;
  }

  bool adds(size_t index, int slot) const {
    return !makes_matrices(ir_, op(index)) &&
           op(index).op.spec->output_spec(static_cast<int>(ir_.output_of(op(index), slot)))->accumulates;
  }
  std::optional<size_t> term_writer(int slot, size_t sum) const;
  void redirect(size_t index, int from, int to, bool add);
  bool fold(size_t sum);
  bool fold_in_place(size_t sum);
  bool fold_all_terms(size_t sum);
  bool fold_last_terms(size_t sum);
  std::vector<Term> terms_of(size_t sum) const;
  bool terms_fit(size_t sum) const;
  bool may_show_same_row(int slot, int other) const;
  bool may_hold_the_rest(size_t sum, const Term& last) const;
  bool may_go_ahead(size_t sum, const Term& last) const;
  void drop_terms(size_t sum, At before, const std::set<int>& dropped);
  void bind_again(size_t sum);

  StepIr& ir_;
  std::vector<At> at_;
  size_t turns_ = 0;
  std::vector<bool> gone_;
  std::vector<Users> readers_, writers_;           // by slot
  std::vector<int> reads_;                         // by slot, as often as operators have it
  std::map<const void*, std::vector<int>> links_;  // by storage: linked slots that show it
};

Folds::Folds(StepIr& ir)
    : ir_(ir),
      at_(ir.ops.size()),
      gone_(ir.ops.size()),
      readers_(ir.slots.size()),
      writers_(ir.slots.size()),
      reads_(ir.slots.size()) {
  for (size_t i = 0; i < at_.size(); ++i) {
    at_[i].number = i;
    for (const int s : op(i).in_slots) {
      if (s < 0) continue;
      ++reads_[s];
      readers_[s].emplace(at_[i], i);
    }
    for (const int s : op(i).out_slots)
      if (s >= 0) writers_[s].emplace(at_[i], i);
  }
  for (size_t s = 0; s < readers_.size(); ++s)
    if (ir.slots[s]->kind == Kind::link) links_[ir.slots[s]->whole.storage().get()].push_back(static_cast<int>(s));
}

// The operator that makes the term, if only it writes and only the sum reads it.
std::optional<size_t> Folds::term_writer(int index, size_t sum) const {
  if (index < 0 || reads_[index] != 1 || writers_[index].size() != 1) return std::nullopt;
  const StepSlot& term = slot(index);
  if (term.kind != Kind::scratch || !term.typed || term.reshaped || ir_.is_total(index)) return std::nullopt;
  if (!(term.tensor.shape() == slot(op(sum).out_slots[0]).tensor.shape())) return std::nullopt;
  const auto& [at, writer] = *writers_[index].begin();
  if (at > at_[sum] || !op(writer).kernel || op(writer).plain_copy) return std::nullopt;
  if (op(writer).stage != op(sum).stage) return std::nullopt;
  return writer;
}

// Lets the operator write its output to another slot, or add it there.
void Folds::redirect(size_t index, int from, int to, bool add) {
  const size_t output = ir_.output_of(op(index), from);
  if (add) op(index).accumulate |= 1U << output;
  if (from == to) return;
  slot(from).unused = true;
  op(index).out_slots[output] = to;
  writers_[from].erase(at_[index]);
  writers_[to].emplace(at_[index], index);
}

// A sum that is written over one of its terms: the others can be added there when they are made.
bool Folds::fold_in_place(size_t sum) {
  const int result = op(sum).out_slots[0];
  if (std::ranges::count(op(sum).in_slots, result) != 1 || op(sum).phase != Phase::step || ir_.is_total(result))
    return false;
  // Behind the last one that writes it the term that is overwritten is there, and nobody but the sum may read it.
  const auto own = writers_[result].find(at_[sum]);
  if (own == writers_[result].begin()) return false;
  const At first = std::prev(own)->first;
  if (readers_[result].upper_bound(first)->second != sum) return false;
  std::vector<std::pair<size_t, int>> adding;
  for (const int s : op(sum).in_slots) {
    if (s == result) continue;
    const std::optional<size_t> writer = term_writer(s, sum);
    if (!writer || at_[*writer] <= first || op(*writer).phase != Phase::step || !adds(*writer, s)) return false;
    adding.emplace_back(*writer, s);
  }
  for (const auto& [writer, s] : adding) redirect(writer, s, result, true);
  return true;
}

bool Folds::fold_all_terms(size_t sum) {
  const int result = op(sum).out_slots[0];
  if (std::ranges::count(op(sum).in_slots, result) > 0) return fold_in_place(sum);
  const StepSlot& place = slot(result);
  if ((place.kind != Kind::scratch && place.kind != Kind::slab) || place.reshaped || ir_.is_total(result)) return false;
  if (writers_[result].begin()->second != sum) return false;
  std::vector<Term> terms;
  for (const int s : op(sum).in_slots) {
    const std::optional<size_t> writer = term_writer(s, sum);
    if (!writer) return false;
    terms.push_back({at_[*writer], *writer, s});
  }
  // Those that run before the block write before all others.
  std::ranges::sort(terms, {}, [&](const Term& t) { return std::pair(op(t.writer).phase != Phase::before, t.at); });
  const auto by_one = [](const Term& a, const Term& b) { return a.writer == b.writer; };
  if (std::ranges::adjacent_find(terms, by_one) != terms.end()) return false;
  const auto runs_after = [&](const Term& t) { return op(t.writer).phase == Phase::after; };
  if (op(sum).phase == Phase::after ? !std::ranges::all_of(terms, runs_after) : std::ranges::any_of(terms, runs_after))
    return false;
  if (!std::all_of(terms.begin() + 1, terms.end(), [&](const Term& t) { return adds(t.writer, t.slot); })) return false;
  for (const Term& t : terms) redirect(t.writer, t.slot, result, t.slot != terms.front().slot);
  return true;
}

// The terms that some operator in front of the sum writes, the last one last.
std::vector<Folds::Term> Folds::terms_of(size_t sum) const {
  std::vector<Term> terms;
  for (const int s : op(sum).in_slots) {
    const auto behind = writers_[s].lower_bound(at_[sum]);
    if (behind == writers_[s].begin()) continue;
    const auto& [at, writer] = *std::prev(behind);
    terms.push_back({at, writer, s});
  }
  std::ranges::sort(terms, {}, &Term::at);
  return terms;
}

// Whether the sum of fewer terms would still be one.
bool Folds::terms_fit(size_t sum) const {
  const StepSlot& result = slot(op(sum).out_slots[0]);
  if (ir_.is_total(op(sum).out_slots[0]) || result.reshaped) return false;
  return std::ranges::all_of(op(sum).in_slots, [&](int s) {
    return s >= 0 && slot(s).tensor.shape() == result.tensor.shape() &&
           slot(s).tensor.dtype() == result.tensor.dtype() && !slot(s).reshaped;
  });
}

// Whether the linked slots, of one tensor, may show the same row in a timestep.
bool Folds::may_show_same_row(int index, int other) const {
  return index == other || ir_.first_row(index) < 0 || ir_.first_row(index) == ir_.first_row(other);
}

// Whether the sum of the other terms can stand in the result while the product makes its own.
bool Folds::may_hold_the_rest(size_t sum, const Term& last) const {
  const int result = op(sum).out_slots[0];
  const auto is_free = [&](int s) {
    const bool is_written = s != last.slot && any_between(writers_[s], last.at, at_[sum]);
    return !is_written && !any_between(readers_[s], last.at, at_[sum]);
  };
  if (slot(result).kind != Kind::link) return is_free(result);
  return std::ranges::all_of(links_.at(slot(result).whole.storage().get()),
                             [&](int s) { return !may_show_same_row(result, s) || is_free(s); });
}

// Whether the sum may stand in front of the operator that makes its last term, which is then added to it.
bool Folds::may_go_ahead(size_t sum, const Term& last) const {
  const StepOp& product = op(last.writer);
  const int result = op(sum).out_slots[0];
  const bool stays = at_[last.writer].turn == At().turn;
  if (product.phase != Phase::step || product.stage != op(sum).stage || !stays) return false;
  const size_t output = ir_.output_of(product, last.slot);
  if ((product.accumulate >> output & 1) != 0 || !adds(last.writer, last.slot)) return false;
  if (last.slot != result) {
    if (term_writer(last.slot, sum) != last.writer) return false;
  } else if (writers_[result].size() != 2 || writers_[result].rbegin()->second != sum) {
    return false;
  }
  return may_hold_the_rest(sum, last);
}

// The sum goes in front of one operator that makes its last term after the other. Returns whether it is gone.
bool Folds::fold_last_terms(size_t sum) {
  if (op(sum).phase != Phase::step || !terms_fit(sum)) return false;
  const int result = op(sum).out_slots[0];
  const At before = at_[sum];
  std::set<int> dropped;
  std::vector<Term> terms = terms_of(sum);
  while (!terms.empty() && op(sum).in_slots.size() - dropped.size() > 1) {
    const Term last = terms.back();
    terms.pop_back();
    // An operator that makes two of the terms, or one that is there twice, is no last one.
    if (!terms.empty() && terms.back().writer == last.writer) break;
    if (!may_go_ahead(sum, last)) break;
    redirect(last.writer, last.slot, result, true);
    dropped.insert(last.slot);
    at_[sum] = {last.at.number, turns_++};
    if (last.slot == result) break;
  }
  if (dropped.empty()) return false;
  drop_terms(sum, before, dropped);
  return dropped.count(result) > 0 && fold(sum);
}

// Takes the sum, which stood there before, to its new place.
void Folds::drop_terms(size_t sum, At before, const std::set<int>& dropped) {
  for (const int s : op(sum).in_slots) {
    readers_[s].erase(before);
    if (dropped.count(s) > 0)
      --reads_[s];
    else
      readers_[s].emplace(at_[sum], sum);
  }
  std::erase_if(op(sum).in_slots, [&](int s) { return dropped.count(s) > 0; });
  Users& writers = writers_[op(sum).out_slots[0]];
  writers.erase(before);
  writers.emplace(at_[sum], sum);
}

// Makes it an operator of the terms that it has left.
void Folds::bind_again(size_t index) {
  StepOp& sum = op(index);
  OperatorDef def;  // of an operator with any number of terms
  def.set_type(op_with_role(Role::sum).type);
  def.set_name(sum.op.def.name());
  for (const int s : sum.in_slots) def.add_input(slot(s).name);
  def.add_output(slot(sum.out_slots[0]).name);
  sum.op = bind_op(def, ir_.net_name, sum.op.index, sum.op.device);
  sum.op.net_name = ir_.spec.random_name;
  const StepSlot& result = slot(sum.out_slots[0]);
  const std::vector<TensorType> in(sum.in_slots.size(), TensorType::of(result.tensor.dtype(), result.tensor.shape()));
  sum.kernel = &pick_kernel(sum.op, in, std::span(in).first(1));
}

// Returns whether the sum is gone.
bool Folds::fold(size_t sum) {
  if (op(sum).in_slots.size() < 2) return false;
  if (!fold_all_terms(sum)) return fold_last_terms(sum);
  gone_[sum] = true;
  for (const int s : op(sum).in_slots) {
    --reads_[s];
    readers_[s].erase(at_[sum]);
  }
  writers_[op(sum).out_slots[0]].erase(at_[sum]);
  return true;
}

void Folds::run() {
  for (size_t i = 0; i < at_.size(); ++i) {
    if (!op(i).op.spec->sums_inputs || !op(i).kernel) continue;
    const size_t terms = op(i).in_slots.size();
    if (!fold(i) && op(i).in_slots.size() < terms) bind_again(i);
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < at_.size(); ++i)
    if (!gone_[i]) order.push_back(i);
  std::ranges::sort(order, {}, [&](size_t i) { return at_[i]; });
  std::vector<std::unique_ptr<StepOp>> left;
  for (const size_t i : order) left.push_back(std::move(ir_.ops[i]));
  ir_.ops = std::move(left);
}

}  // namespace

void fold_sums(StepIr& ir) { Folds(ir).run(); }

}  // namespace stepnet
