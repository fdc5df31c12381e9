// A pass over a StepProgram: elementwise operators that follow one another in a timestep become one loop over pieces of
// rows (core/compute/elementwise_chain.h). Slices of columns are read where they are, and a sum of gradients of such
// slices that fill a tensor is written as they come. What only the chain itself reads has no tensor any more.
#include <algorithm>
#include <limits>
#include <numeric>

#include "recurrent/step/fuse.h"

namespace stepnet {

using Kind = StepSlot::Kind;

namespace {

constexpr int64_t kNarrow = 8;  // rows of fewer elements are faster one operator after the other

// Chains of halves run on devices with an arithmetic for them.
bool has_chains(DeviceKind device, DType type) {
  if (device != DeviceKind::cpu) return is_floating(type);
  return type == DType::float32 || type == DType::float64;
}

}  // namespace

// The columns that the operator takes from its input, or puts its inputs into; empty if it does not do that alone.
std::vector<int64_t> StepProgram::columns_of(const Op& op, bool puts) const {
  const auto& fn = puts ? op.op.spec->puts_columns : op.op.spec->takes_columns;
  if (!fn || !op.kernel || op.plain_copy) return {};
  std::vector<TensorType> in, out;
  const auto add = [&](std::vector<TensorType>& types, int s) {
    types.emplace_back();
    types.back().absent = s < 0;
    if (s >= 0 && slots_[s]->typed) types.back() = TensorType::of(slots_[s]->tensor.dtype(), slots_[s]->tensor.shape());
  };
  for (const int s : op.in_slots) add(in, s);
  for (const int s : op.out_slots) add(out, s);
  return fn(op.op.args.get(), ShapeCall(in, out));
}

// Whether the slot holds the chain's rows, with `width` columns.
bool StepProgram::has_rows(const Chain& chain, int slot, int64_t width) const {
  if (slot < 0) return false;
  const StepSlot& s = *slots_[slot];
  return s.typed && !s.reshaped && s.tensor.dtype() == chain.dtype && s.kind != Kind::timestep && !is_total(slot) &&
         last_dim(s.tensor) == width && s.tensor.size() == chain.rows * width;
}

// The operand that an input is; -1 if it cannot be one.
int StepProgram::operand_of(Chain& chain, int slot) const {
  if (slot < 0) return -1;
  if (const auto known = chain.values.find(slot); known != chain.values.end()) return known->second;
  if (chain.writes(slot)) return -1;
  if (has_rows(chain, slot, chain.width)) return chain.source({slot, 0, chain.width, false});
  const StepSlot& s = *slots_[slot];
  const bool vector = s.kind == Kind::external && s.tensor.dtype() == chain.dtype && s.tensor.size() == chain.width &&
                      last_dim(s.tensor) == chain.width;
  return vector ? chain.source({slot, 0, chain.width, true}) : -1;
}

bool StepProgram::add_elementwise(Chain& chain, const Op& op) const {
  if (!op.op.spec->fused || op.out_slots.size() != 1 || !has_rows(chain, op.out_slots[0], chain.width)) return false;
  const auto inputs = static_cast<int>(op.in_slots.size());
  const FusedBody body = op.op.spec->fused(op.op.args.get(), inputs);
  if (body.empty() || chain.reads_columns_of(op.out_slots[0])) return false;
  std::vector<int> operands;
  for (const int s : op.in_slots) {
    operands.push_back(operand_of(chain, s));
    if (operands.back() < 0) return false;
  }
  for (FusedInstruction i : body) {
    i.a = operands[i.a];
    i.b = operands[i.b];
    operands.push_back(static_cast<int>(chain.code.size()));
    chain.code.push_back(i);
  }
  chain.values[op.out_slots[0]] = operands.back();
  return true;
}

bool StepProgram::add_taken_columns(Chain& chain, const Op& op) const {
  const std::vector<int64_t> columns = columns_of(op, false);
  const int from = op.in_slots[0];
  if (columns.size() != op.out_slots.size() || from < 0 || chain.writes(from)) return false;
  const int64_t size = last_dim(slots_[from]->tensor);
  if (size == chain.width || !has_rows(chain, from, size)) return false;
  for (size_t o = 0; o < columns.size(); ++o) {
    const int to = op.out_slots[o];
    if (to < 0) continue;
    if (!has_rows(chain, to, chain.width) || chain.reads_columns_of(to)) return false;
    chain.values[to] = chain.source({from, columns[o], size, false});
  }
  return true;
}

// Whether a sum reads the slot next, and nobody what is in it now after that.
bool StepProgram::is_summed_next(size_t index, int slot) const {
  const auto reads = [&](size_t i) { return std::ranges::count(ops_[i]->in_slots, slot); };
  const auto writes = [&](size_t i) { return std::ranges::count(ops_[i]->out_slots, slot) > 0; };
  const std::vector<size_t>& all = users(slot);
  const auto next = std::ranges::upper_bound(all, index);
  if (next == all.end() || !ops_[*next]->op.spec->sums_inputs || reads(*next) != 1) return false;
  return writes(*next) || std::none_of(next + 1, all.end(), [&](size_t i) { return reads(i) > 0; });
}

// Parts that fill their tensor, or one that is the only thing in it until a sum adds the others.
bool StepProgram::add_put_columns(Chain& chain, size_t index) const {
  const Op& op = *ops_[index];
  const std::vector<int64_t> columns = columns_of(op, true);
  if (columns.empty() || columns.size() > op.in_slots.size()) return false;
  for (size_t o = 1; o < op.out_slots.size(); ++o)
    if (op.out_slots[o] >= 0) return false;
  std::vector<Part> parts;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < 0) continue;
    int value = operand_of(chain, op.in_slots[i]);
    if (value < 0) return false;
    if (value >= kSource) {  // copied now, because an operator after this one may write there
      chain.code.push_back({FusedCode::copy, value, value});
      value = static_cast<int>(chain.code.size()) - 1;
    }
    parts.push_back({value, columns[i], chain.width});
  }
  const int to = op.out_slots[0];
  const int64_t size = last_dim(slots_[to]->tensor);
  if (chain.writes(to) || chain.reads_columns_of(to) || !has_rows(chain, to, size)) return false;
  if (static_cast<int64_t>(parts.size()) * chain.width == size) return fill(chain, to, std::move(parts));
  if (parts.size() != 1 || !is_summed_next(index, to)) return false;
  chain.padded[to] = std::move(parts);
  return true;
}

// False if a column has no part, or two.
bool StepProgram::fill(Chain& chain, int to, std::vector<Part> parts) const {
  std::ranges::sort(parts, {}, &Part::column);
  int64_t at = 0;
  for (const Part& p : parts) {
    if (p.column != at) return false;
    at += p.size;
  }
  if (!has_rows(chain, to, at) || chain.writes(to) || chain.reads_columns_of(to)) return false;
  for (const Place& p : chain.sources)
    if (p.slot == to) return false;
  chain.filled[to] = std::move(parts);
  return true;
}

// A sum of gradients of slices that fill their tensor, each column once.
bool StepProgram::add_filled(Chain& chain, const Op& op) const {
  if (!op.op.spec->sums_inputs || op.out_slots.size() != 1) return false;
  std::vector<Part> parts;
  for (const int s : op.in_slots) {
    const auto part = chain.padded.find(s);
    if (part == chain.padded.end()) return false;
    parts.insert(parts.end(), part->second.begin(), part->second.end());
  }
  for (const int s : op.in_slots) chain.padded.erase(s);
  return fill(chain, op.out_slots[0], std::move(parts));
}

// The slot that has a chain's rows if the operator is its first.
int StepProgram::chain_begin(const Op& op) const {
  const std::vector<int64_t> put = columns_of(op, true);
  for (size_t i = 0; i < std::min(put.size(), op.in_slots.size()); ++i)
    if (put[i] >= 0) return op.in_slots[i];
  const auto made = std::ranges::find_if(op.out_slots, [](int s) { return s >= 0; });
  return made == op.out_slots.end() ? -1 : *made;
}

bool StepProgram::add_to_chain(Chain& chain, size_t index) const {
  const Op& op = *ops_[index];
  if (op.phase != Phase::step || !op.kernel || op.plain_copy || op.nested || op.accumulate != 0) return false;
  if (!chain.ops.empty() && ops_[chain.ops.back()]->stage != op.stage) return false;
  if (op.op.spec->random || op.op.spec->side_effect || op.in_slots.empty() || op.out_slots.empty()) return false;
  if (chain.sources.size() + op.in_slots.size() + 8 > kMostFusedTensors || chain.code.size() + 8 > kMostFusedValues)
    return false;
  if (chain.ops.empty()) {
    const int like = chain_begin(op);
    if (like < 0) return false;
    const Tensor& first = slots_[like]->tensor;
    if (!has_chains(spec_.device.kind, first.dtype()) || first.size() == 0) return false;
    chain.dtype = first.dtype();
    chain.width = last_dim(first);
    if (chain.width < kNarrow) return false;
    chain.rows = first.size() / chain.width;
  }
  Chain longer = chain;
  if (!add_filled(longer, op) && !add_elementwise(longer, op) && !add_taken_columns(longer, op) &&
      !add_put_columns(longer, index))
    return false;
  longer.ops.push_back(index);
  chain = std::move(longer);
  return true;
}

// Slices of columns go to the first operator that reads one of them, so that nothing stands between them and its chain.
void StepProgram::move_slices_to_readers() {
  const KnownUses known(*this);
  // Where an operator stands: a slice that has moved has the number of the operator in front of which it is, and its
  // place among the slices there.
  using At = std::pair<size_t, int64_t>;
  constexpr int64_t kStays = std::numeric_limits<int64_t>::max();
  std::vector<At> at;
  for (size_t i = 0; i < ops_.size(); ++i) at.emplace_back(i, kStays);
  int64_t first = 0, last = 0;
  for (size_t i = ops_.size(); i-- > 0;) {
    const Op& op = *ops_[i];
    if (op.phase != Phase::step || columns_of(op, false).empty()) continue;
    const auto may_change = [&](int s) { return s >= 0 && slots_[s]->kind == Kind::link && shares_storage(s); };
    if (std::ranges::any_of(op.in_slots, may_change)) continue;
    std::optional<size_t> next;  // that reads or writes a slice, or writes what it is taken from
    const auto look_at = [&](const std::vector<size_t>& others) {
      for (auto other = std::ranges::upper_bound(others, i); other != others.end(); ++other)
        if (!next || at[*other] < at[*next]) next = *other;
    };
    for (const int s : op.in_slots)
      if (s >= 0) look_at(writers(s));
    for (const int s : op.out_slots)
      if (s >= 0) look_at(users(s));
    if (!next || ops_[*next]->stage != op.stage || ops_[*next]->phase != Phase::step) continue;
    const auto is_result = [&](int s) { return s >= 0 && std::ranges::count(op.out_slots, s) > 0; };
    if (std::ranges::any_of(ops_[*next]->in_slots, is_result))
      at[i] = {at[*next].first, at[*next].second == kStays ? ++last : --first};
  }
  std::vector<size_t> order(ops_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return at[i]; });
  std::vector<std::unique_ptr<Op>> moved;
  for (const size_t i : order) moved.push_back(std::move(ops_[i]));
  ops_ = std::move(moved);
}

// Returns which operators are part of another one now.
std::vector<bool> StepProgram::close_chains() {
  const KnownUses known(*this);
  std::vector<bool> gone(ops_.size(), false);
  Chain chain;
  const auto close = [&] {
    if (close_chain(chain))
      for (size_t i = 0; i + 1 < chain.ops.size(); ++i) gone[chain.ops[i]] = true;
    chain = {};
  };
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i]->phase != Phase::step || add_to_chain(chain, i)) continue;
    close();
    add_to_chain(chain, i);
  }
  close();
  return gone;
}

void StepProgram::fuse_chains() {
  move_slices_to_readers();
  const std::vector<bool> gone = close_chains();
  std::vector<std::unique_ptr<Op>> left;
  for (size_t i = 0; i < ops_.size(); ++i)
    if (!gone[i]) left.push_back(std::move(ops_[i]));
  ops_ = std::move(left);
  const KnownUses known(*this);
  for (size_t s = 0; s < slots_.size(); ++s) {
    const bool own = slots_[s]->kind == Kind::scratch || slots_[s]->kind == Kind::block;
    if (own && !is_total(static_cast<int>(s)) && uses_of(static_cast<int>(s)) == 0) slots_[s]->unused = true;
  }
}

// A slice of columns that only operators of a timestep read is no work there, so it is not worth running before.
void StepProgram::keep_slices_in_steps() {
  const KnownUses known(*this);
  for (const auto& op : ops_) {
    if (op->phase != Phase::before || columns_of(*op, false).empty()) continue;
    const auto in_steps = [&](int s) {
      return s < 0 || std::ranges::all_of(users(s), [&](size_t i) {
               const Op& reader = *ops_[i];
               return (reader.phase == Phase::step && reader.stage == op->stage) ||
                      std::ranges::count(reader.in_slots, s) == 0;
             });
    };
    if (std::ranges::all_of(op->out_slots, in_steps)) op->phase = Phase::step;
  }
}

}  // namespace stepnet
