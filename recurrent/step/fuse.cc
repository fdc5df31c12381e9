// A pass over a StepIr: elementwise operators that follow one another in a timestep become one loop over pieces of
// rows (stepnet/elementwise_chain.h). Slices of columns are read where they are, and a sum of gradients of such
// slices that fill a tensor is written as they come. What only the chain itself reads has no tensor any more.
#include <algorithm>
#include <limits>
#include <numeric>

#include "core/operator/fused_kernel.h"
#include "recurrent/step/fuse.h"
#include "recurrent/step/passes.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

namespace {

constexpr int64_t kNarrow = 8;  // rows of fewer elements are faster one operator after the other

}  // namespace

// Whether the slot holds the chain's rows, with `width` columns.
static bool has_rows(const StepIr& ir, const StepChain& chain, int slot, int64_t width) {
  if (slot < 0) return false;
  const StepSlot& s = *ir.slots[slot];
  return s.typed && !s.reshaped && s.tensor.dtype() == chain.dtype && s.kind != Kind::timestep && !ir.is_total(slot) &&
         last_dim(s.tensor) == width && s.tensor.size() == chain.rows * width;
}

// The operand that an input is; -1 if it cannot be one.
static int operand_of(const StepIr& ir, StepChain& chain, int slot) {
  if (slot < 0) return -1;
  if (const auto known = chain.values.find(slot); known != chain.values.end()) return known->second;
  if (chain.writes(slot)) return -1;
  if (has_rows(ir, chain, slot, chain.width)) return chain.source({slot, 0, chain.width});
  const StepSlot& s = *ir.slots[slot];
  const bool vector = s.kind == Kind::external && s.tensor.dtype() == chain.dtype && s.tensor.size() == chain.width &&
                      last_dim(s.tensor) == chain.width;
  if (vector) return chain.source({slot, 0, chain.width, true});
  // What is repeated along the columns, as shapes of operators that broadcast are, has these rows or one.
  if (std::ranges::count(chain.sources, true, &ChainPlace::one_column) == kMostFusedRepeats) return -1;
  if (has_rows(ir, chain, slot, 1)) return chain.source({slot, 0, 1, false, true});
  const bool number = s.kind == Kind::external && s.tensor.dtype() == chain.dtype && s.tensor.size() == 1;
  return number ? chain.source({slot, 0, 1, true, true}) : -1;
}

static bool add_elementwise(const StepIr& ir, StepChain& chain, const StepOp& op) {
  if (!op.op.spec->fused || op.out_slots.size() != 1 || !has_rows(ir, chain, op.out_slots[0], chain.width))
    return false;
  const auto inputs = static_cast<int>(op.in_slots.size());
  const FusedBody body = op.op.spec->fused(op.op.args.get(), inputs);
  if (body.empty() || chain.reads_columns_of(op.out_slots[0])) return false;
  if (chain.code.size() + body.size() > kMostFusedValues) return false;
  std::vector<int> operands;
  for (int i = 0; i < inputs; ++i) {
    const bool is_read = reads_input(body, i);
    operands.push_back(is_read ? operand_of(ir, chain, op.in_slots[i]) : 0);
    if (operands.back() < 0) return false;
  }
  for (FusedInstruction i : body) {
    i.a = operands[i.a];
    i.b = operands[i.b];
    operands.push_back(static_cast<int>(chain.code.size()));
    chain.code.push_back(i);
  }
  chain.code.back().is_output = true;
  chain.values[op.out_slots[0]] = operands.back();
  return true;
}

static bool add_taken_columns(const StepIr& ir, StepChain& chain, const StepOp& op) {
  const std::vector<int64_t> columns = ir.columns_of(op, false);
  const int from = op.in_slots[0];
  if (columns.size() != op.out_slots.size() || from < 0 || chain.writes(from)) return false;
  const int64_t size = last_dim(ir.slots[from]->tensor);
  if (size == chain.width || !has_rows(ir, chain, from, size)) return false;
  for (size_t o = 0; o < columns.size(); ++o) {
    const int to = op.out_slots[o];
    if (to < 0) continue;
    if (!has_rows(ir, chain, to, chain.width) || chain.reads_columns_of(to)) return false;
    chain.values[to] = chain.source({from, columns[o], size});
  }
  return true;
}

// Whether a sum reads the slot next, and nobody what is in it now after that.
static bool is_summed_next(const StepIr& ir, size_t index, int slot) {
  const auto reads = [&](size_t i) { return std::ranges::count(ir.ops[i]->in_slots, slot); };
  const auto writes = [&](size_t i) { return std::ranges::count(ir.ops[i]->out_slots, slot) > 0; };
  const std::vector<size_t>& all = ir.users(slot);
  const auto next = std::ranges::upper_bound(all, index);
  if (next == all.end() || !ir.ops[*next]->op.spec->sums_inputs || reads(*next) != 1) return false;
  return writes(*next) || std::none_of(next + 1, all.end(), [&](size_t i) { return reads(i) > 0; });
}

// False if a column has no part, or two.
static bool fill(const StepIr& ir, StepChain& chain, int to, std::vector<ChainPart> parts) {
  std::ranges::sort(parts, {}, &ChainPart::column);
  int64_t at = 0;
  for (const ChainPart& p : parts) {
    if (p.column != at) return false;
    at += p.size;
  }
  if (!has_rows(ir, chain, to, at) || chain.writes(to) || chain.reads_columns_of(to)) return false;
  for (const ChainPlace& p : chain.sources)
    if (p.slot == to) return false;
  chain.filled[to] = std::move(parts);
  return true;
}

// Parts that fill their tensor, or one that is the only thing in it until a sum adds the others.
static bool add_put_columns(const StepIr& ir, StepChain& chain, size_t index) {
  const StepOp& op = *ir.ops[index];
  const std::vector<int64_t> columns = ir.columns_of(op, true);
  if (columns.empty() || columns.size() > op.in_slots.size()) return false;
  for (size_t o = 1; o < op.out_slots.size(); ++o)
    if (op.out_slots[o] >= 0) return false;
  std::vector<ChainPart> parts;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < 0) continue;
    int value = operand_of(ir, chain, op.in_slots[i]);
    if (value < 0) return false;
    if (value >= kSource) {  // copied now, because an operator after this one may write there
      chain.code.push_back({FusedCode::copy, value, value});
      value = static_cast<int>(chain.code.size()) - 1;
    }
    parts.push_back({value, columns[i], chain.width});
  }
  const int to = op.out_slots[0];
  const int64_t size = last_dim(ir.slots[to]->tensor);
  if (chain.writes(to) || chain.reads_columns_of(to) || !has_rows(ir, chain, to, size)) return false;
  if (static_cast<int64_t>(parts.size()) * chain.width == size) return fill(ir, chain, to, std::move(parts));
  if (parts.size() != 1 || !is_summed_next(ir, index, to)) return false;
  chain.padded[to] = std::move(parts);
  return true;
}

// A sum of gradients of slices that fill their tensor, each column once.
static bool add_filled(const StepIr& ir, StepChain& chain, const StepOp& op) {
  if (!op.op.spec->sums_inputs || op.out_slots.size() != 1) return false;
  std::vector<ChainPart> parts;
  for (const int s : op.in_slots) {
    const auto part = chain.padded.find(s);
    if (part == chain.padded.end()) return false;
    parts.insert(parts.end(), part->second.begin(), part->second.end());
  }
  for (const int s : op.in_slots) chain.padded.erase(s);
  return fill(ir, chain, op.out_slots[0], std::move(parts));
}

// The slot that has a chain's rows if the operator is its first.
static int chain_begin(const StepIr& ir, const StepOp& op) {
  const std::vector<int64_t> put = ir.columns_of(op, true);
  for (size_t i = 0; i < std::min(put.size(), op.in_slots.size()); ++i)
    if (put[i] >= 0) return op.in_slots[i];
  const auto made = std::ranges::find_if(op.out_slots, [](int s) { return s >= 0; });
  return made == op.out_slots.end() ? -1 : *made;
}

static bool add_to_chain(const StepIr& ir, StepChain& chain, size_t index) {
  const StepOp& op = *ir.ops[index];
  if (op.phase != Phase::step || !op.kernel || op.plain_copy || op.nested || op.accumulate != 0) return false;
  if (!chain.ops.empty() && ir.ops[chain.ops.back()]->stage != op.stage) return false;
  if (op.op.spec->random || op.op.spec->side_effect || op.in_slots.empty() || op.out_slots.empty()) return false;
  if (chain.sources.size() + op.in_slots.size() + 8 > kMostFusedTensors || chain.code.size() + 8 > kMostFusedValues)
    return false;
  if (chain.ops.empty()) {
    const int like = chain_begin(ir, op);
    if (like < 0) return false;
    const Tensor& first = ir.slots[like]->tensor;
    if (!is_floating(first.dtype()) || first.size() == 0) return false;
    chain.dtype = first.dtype();
    chain.width = last_dim(first);
    if (chain.width < kNarrow) return false;
    chain.rows = first.size() / chain.width;
  }
  StepChain longer = chain;
  if (!add_filled(ir, longer, op) && !add_elementwise(ir, longer, op) && !add_taken_columns(ir, longer, op) &&
      !add_put_columns(ir, longer, index))
    return false;
  longer.ops.push_back(index);
  chain = std::move(longer);
  return true;
}

// Slices of columns go to the first operator that reads one of them, so that nothing stands between them and its chain.
static void move_slices_to_readers(StepIr& ir) {
  const KnownUses known(ir);
  // Where an operator stands: a slice that has moved has the number of the operator in front of which it is, and its
  // place among the slices there.
  using At = std::pair<size_t, int64_t>;
  constexpr int64_t kStays = std::numeric_limits<int64_t>::max();
  std::vector<At> at;
  for (size_t i = 0; i < ir.ops.size(); ++i) at.emplace_back(i, kStays);
  int64_t first = 0, last = 0;
  for (size_t i = ir.ops.size(); i-- > 0;) {
    const StepOp& op = *ir.ops[i];
    if (op.phase != Phase::step || ir.columns_of(op, false).empty()) continue;
    const auto may_change = [&](int s) { return s >= 0 && ir.slots[s]->kind == Kind::link && ir.shares_storage(s); };
    if (std::ranges::any_of(op.in_slots, may_change)) continue;
    std::optional<size_t> next;  // that reads or writes a slice, or writes what it is taken from
    const auto look_at = [&](const std::vector<size_t>& others) {
      for (auto other = std::ranges::upper_bound(others, i); other != others.end(); ++other)
        if (!next || at[*other] < at[*next]) next = *other;
    };
    for (const int s : op.in_slots)
      if (s >= 0) look_at(ir.writers(s));
    for (const int s : op.out_slots)
      if (s >= 0) look_at(ir.users(s));
    if (!next || ir.ops[*next]->stage != op.stage || ir.ops[*next]->phase != Phase::step) continue;
    const auto is_result = [&](int s) { return s >= 0 && std::ranges::count(op.out_slots, s) > 0; };
    if (std::ranges::any_of(ir.ops[*next]->in_slots, is_result))
      at[i] = {at[*next].first, at[*next].second == kStays ? ++last : --first};
  }
  std::vector<size_t> order(ir.ops.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return at[i]; });
  std::vector<std::unique_ptr<StepOp>> moved;
  for (const size_t i : order) moved.push_back(std::move(ir.ops[i]));
  ir.ops = std::move(moved);
}

// Returns which operators are part of another one now.
static std::vector<bool> close_chains(StepIr& ir) {
  const KnownUses known(ir);
  std::vector<bool> gone(ir.ops.size(), false);
  StepChain chain;
  const auto close = [&] {
    if (close_chain(ir, chain))
      for (size_t i = 0; i + 1 < chain.ops.size(); ++i) gone[chain.ops[i]] = true;
    chain = {};
  };
  for (size_t i = 0; i < ir.ops.size(); ++i) {
    if (ir.ops[i]->phase != Phase::step || add_to_chain(ir, chain, i)) continue;
    close();
    add_to_chain(ir, chain, i);
  }
  close();
  return gone;
}

void fuse_chains(StepIr& ir) {
  move_slices_to_readers(ir);
  const std::vector<bool> gone = close_chains(ir);
  std::vector<std::unique_ptr<StepOp>> left;
  for (size_t i = 0; i < ir.ops.size(); ++i)
    if (!gone[i]) left.push_back(std::move(ir.ops[i]));
  ir.ops = std::move(left);
  const KnownUses known(ir);
  for (size_t s = 0; s < ir.slots.size(); ++s) {
    const bool own = ir.slots[s]->kind == Kind::scratch || ir.slots[s]->kind == Kind::block;
    if (own && !ir.is_total(static_cast<int>(s)) && ir.uses_of(static_cast<int>(s)) == 0) ir.slots[s]->unused = true;
  }
}

// A slice of columns that only operators of a timestep read is no work there, so it is not worth running before.
void keep_slices_in_steps(StepIr& ir) {
  const KnownUses known(ir);
  for (const auto& op : ir.ops) {
    if (op->phase != Phase::before || ir.columns_of(*op, false).empty()) continue;
    const auto in_steps = [&](int s) {
      return s < 0 || std::ranges::all_of(ir.users(s), [&](size_t i) {
               const StepOp& reader = *ir.ops[i];
               return (reader.phase == Phase::step && reader.stage == op->stage) ||
                      std::ranges::count(reader.in_slots, s) == 0;
             });
    };
    if (std::ranges::all_of(op->out_slots, in_steps)) op->phase = Phase::step;
  }
}

}  // namespace stepnet
