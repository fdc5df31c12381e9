// A pass over a StepIr: elementwise operators that follow one another in a timestep, or in what runs for a block of
// them, become one loop over pieces of rows (stepnet/elementwise_chain.h). Slices of columns are read where they are,
// and a sum of gradients of such slices that fill a tensor is written as they come. What only the chain itself reads
// has no tensor any more.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "core/operator/fused_kernel.h"
#include "recurrent/step/fuse.h"
#include "recurrent/step/passes.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

namespace {

constexpr int64_t kNarrow = 8;  // rows of fewer elements are faster one operator after the other

}  // namespace

// Whether the slot holds the chain's rows, with `width` columns. Of a block, what does not change over time has those
// of one timestep.
static bool has_rows(const StepIr& ir, const StepChain& chain, int slot, int64_t width) {
  if (slot < 0) return false;
  const StepSlot& s = *ir.slots[slot];
  if (chain.phase != Phase::step && !ir.varies(slot)) return false;
  return s.typed && !s.reshaped && s.tensor.dtype() == chain.dtype && s.kind != Kind::timestep && !ir.is_total(slot) &&
         last_dim(s.tensor) == width && s.tensor.size() == chain.rows * width;
}

// Finds which of the chain's rows have a row of the slot in common, as its shape is broadcast to the chain's: it may
// have one row for several that follow one another, and start again after some. False if neither says it all.
static bool find_rows(const StepIr& ir, const StepChain& chain, int slot, const Shape& from, const Shape& to,
                      ChainPlace& place) {
  const StepSlot& s = *ir.slots[slot];
  if (!s.typed || s.reshaped || s.kind == Kind::timestep || ir.is_total(slot)) return false;
  const bool varies = ir.varies(slot), in_block = chain.phase != Phase::step;
  if (s.tensor.dtype() != chain.dtype || from.rank() > to.rank()) return false;
  if (in_block && varies && from.rank() != to.rank()) return false;
  enum { each, own, cycle } part = each;
  int64_t rows = 1;
  for (int d = to.rank() - 2; d >= 0; --d) {
    const int at = d - (to.rank() - from.rank());
    const int64_t size = at < 0 ? 1 : from[at];
    // Of a block, the first dimension counts timesteps, too: what varies has them, and else there is one for all.
    const bool is_time = in_block && d == 0;
    if (size != to[d] && size != 1) return false;
    if (is_time && (varies ? size != to[d] : size != 1)) return false;
    if (size == to[d] && size == 1 && !is_time) continue;
    const bool repeats = is_time ? !varies : size == 1;
    if (part == cycle && !repeats) return false;
    if (part == each && !repeats) part = own;
    if (part == own && repeats) part = cycle;
    if (part == each) place.each *= to[d];
    if (part == own) rows *= size;
  }
  if (part == each) place.each = 1;  // it has no rows at all
  place.one_row = part == each;
  if (part == cycle) place.cycle = rows;
  return true;
}

// What a column is to wide instructions.
static int spread(StepChain& chain, int column) {
  const auto [known, is_new] = chain.spread.emplace(column, static_cast<int>(chain.code.size()));
  if (is_new) chain.code.push_back({FusedCode::spread, column, column});
  return known->second;
}

// The operand that an input is, which is broadcast to the shape; -1 if it cannot be one.
static int operand_of(const StepIr& ir, StepChain& chain, int slot, const Shape& to) {
  if (slot < 0) return -1;
  if (const auto known = chain.values.find(slot); known != chain.values.end()) return known->second;
  if (const auto known = chain.columns.find(slot); known != chain.columns.end())
    return last_dim(ir.slots[slot]->tensor) == 1 ? spread(chain, known->second) : -1;
  if (chain.writes(slot)) return -1;
  if (has_rows(ir, chain, slot, chain.width)) return chain.source({slot, 0, chain.width});
  const int64_t size = last_dim(ir.slots[slot]->tensor);
  ChainPlace place{slot, 0, size, false, size != chain.width};
  if ((size != 1 && size != chain.width) || !find_rows(ir, chain, slot, ir.slots[slot]->tensor.shape(), to, place))
    return -1;
  const bool repeats_rows = place.each > 1 || place.cycle > 0;
  if (repeats_rows && ir.spec.device.kind != DeviceKind::cpu) return -1;  // kernels of GPUs have no such operands
  return chain.source(place);
}

// Appends an operator's instructions; operands[i] is that of input i. Returns the result's number.
static int append(StepChain& chain, const FusedBody& body, std::vector<int> operands, bool narrow) {
  for (FusedInstruction i : body) {
    i.a = operands[i.a];
    i.b = operands[i.b];
    i.narrow = narrow;
    operands.push_back(static_cast<int>(chain.code.size()));
    chain.code.push_back(i);
  }
  chain.code.back().is_output = true;
  return operands.back();
}

// The operands of the inputs that the instructions read, each as `find` finds it; none if one cannot be an operand.
template <class Find>
static std::optional<std::vector<int>> operands_of(const FusedBody& body, const StepOp& op, const Find& find) {
  std::vector<int> operands;
  for (size_t i = 0; i < op.in_slots.size(); ++i) {
    const bool is_read = reads_input(body, static_cast<int>(i));
    operands.push_back(is_read ? find(op.in_slots[i]) : 0);
    if (operands.back() < 0) return std::nullopt;
  }
  return operands;
}

static FusedBody body_of(const StepOp& op) {
  if (!op.op.spec->fused || op.out_slots.size() != 1 || op.out_slots[0] < 0) return {};
  return op.op.spec->fused(op.op.args.get(), static_cast<int>(op.in_slots.size()));
}

static bool add_elementwise(const StepIr& ir, StepChain& chain, const StepOp& op) {
  const FusedBody body = body_of(op);
  if (body.empty() || !has_rows(ir, chain, op.out_slots[0], chain.width) || chain.reads_columns_of(op.out_slots[0]))
    return false;
  if (chain.code.size() + body.size() > kMostFusedValues) return false;
  const Shape& to = ir.slots[op.out_slots[0]]->tensor.shape();
  const auto operands = operands_of(body, op, [&](int slot) { return operand_of(ir, chain, slot, to); });
  if (!operands) return false;
  chain.values[op.out_slots[0]] = append(chain, body, *operands, false);
  return true;
}

// A value as it is now: an operator after this one may write where it is read from.
static int made_now(StepChain& chain, int value) {
  if (value < kSource) return value;
  chain.code.push_back({FusedCode::copy, value, value});
  return static_cast<int>(chain.code.size()) - 1;
}

// Whether a chain may have sums of rows that it reads again: rows are in one piece.
static bool may_sum_rows(const StepIr& ir, const StepChain& chain) {
  return ir.spec.device.kind == DeviceKind::cpu && chain.phase == Phase::step && chain.width > 1 &&
         chain.width <= kFusedPiece && chain.code.size() + 2 <= kMostFusedValues;
}

// Whether a slot of another size is what the chain may have elements of: of its type, and not written by it.
static bool holds_elements(const StepIr& ir, const StepChain& chain, int slot, int64_t size) {
  if (slot < 0 || chain.writes(slot)) return false;
  const StepSlot& s = *ir.slots[slot];
  return s.typed && !s.reshaped && s.kind != Kind::timestep && !ir.is_total(slot) && s.tensor.dtype() == chain.dtype &&
         s.tensor.size() == size && (chain.phase == Phase::step || ir.varies(slot));
}

// Whether the slot may be one element for each row, whatever its shape, and the chain does not read it as something
// else.
static bool may_become_column(const StepIr& ir, const StepChain& chain, int slot) {
  return holds_elements(ir, chain, slot, chain.rows) && !chain.reads(slot);
}

static void add_row_sum(StepChain& chain, int value, int to) {
  FusedInstruction sum{FusedCode::row_sum, value, value};
  sum.is_output = true;
  chain.code.push_back(sum);
  chain.columns[to] = static_cast<int>(chain.code.size()) - 1;
}

// Elementwise operators on columns, one of which the chain makes.
static bool add_on_columns(const StepIr& ir, StepChain& chain, const StepOp& op) {
  const FusedBody body = body_of(op);
  if (body.empty() || !may_become_column(ir, chain, op.out_slots[0])) return false;
  if (chain.code.size() + body.size() > kMostFusedValues) return false;
  if (std::ranges::none_of(op.in_slots, [&](int s) { return chain.columns.count(s) > 0; })) return false;
  const auto with_column = [](Shape shape) {
    shape.push_back(1);
    return shape;
  };
  const Shape& made = ir.slots[op.out_slots[0]]->tensor.shape();
  if (made.rank() == Shape::kMaxRank) return false;
  const Shape to = with_column(made);
  const auto operands = operands_of(body, op, [&](int slot) {
    if (slot < 0) return -1;
    if (const auto known = chain.columns.find(slot); known != chain.columns.end()) return known->second;
    ChainPlace place = narrow_place(slot);
    if (chain.writes(slot) || !find_rows(ir, chain, slot, with_column(ir.slots[slot]->tensor.shape()), to, place))
      return -1;
    return chain.source(place);
  });
  if (!operands) return false;
  chain.columns[op.out_slots[0]] = append(chain, body, *operands, true);
  return true;
}

// Another shape of a column.
static bool add_reshaped_column(const StepIr& ir, StepChain& chain, const StepOp& op) {
  if (!op.op.spec->reshapes || op.in_slots.empty() || op.out_slots.empty()) return false;
  const auto from = chain.columns.find(op.in_slots[0]);
  if (from == chain.columns.end() || !may_become_column(ir, chain, op.out_slots[0])) return false;
  for (size_t o = 1; o < op.out_slots.size(); ++o)
    if (op.out_slots[o] >= 0) return false;
  chain.columns.emplace(op.out_slots[0], from->second);
  return true;
}

// Calls the operator's description of itself with the types of its inputs and of its one output; `otherwise` if it has
// none, or if a type is not known.
template <class Result>
static Result ask(const StepIr& ir, const StepOp& op,
                  const std::function<Result(const void*, const ShapeCall&)>& description, Result otherwise) {
  if (!description || op.out_slots.size() != 1 || op.out_slots[0] < 0) return otherwise;
  std::vector<TensorType> in, out = {ir.type_of(op.out_slots[0])};
  for (const int s : op.in_slots) {
    if (s < 0) return otherwise;
    in.push_back(ir.type_of(s));
    if (!in.back().known) return otherwise;
  }
  return description(op.op.args.get(), ShapeCall(in, out));
}

// Which matrices the operator multiplies by vectors, if it does.
static MatrixVector matrices_of(const StepIr& ir, const StepOp& op) {
  return ask(ir, op, op.op.spec->matrix_vector, MatrixVector());
}

// The rows of each matrix that the operator makes of a column and a row; 0 if it does not.
static int64_t rows_of_products(const StepIr& ir, const StepOp& op) {
  return ask(ir, op, op.op.spec->outer_product, int64_t{0});
}

// What all columns of a row have of a slot with one element for each row; -1 if it has not.
static int column_of(const StepIr& ir, StepChain& chain, int slot) {
  if (const auto made = chain.columns.find(slot); made != chain.columns.end()) return spread(chain, made->second);
  return holds_elements(ir, chain, slot, chain.rows) ? spread(chain, chain.source(narrow_place(slot))) : -1;
}

// What rows add up to that follow one another, `each` of them: those of a value, or elements that are narrow. It is
// there when the chain has ended. Of a half type, sums would be rounded after every piece.
static bool add_total(const StepIr& ir, StepChain& chain, int to, const ChainTotal& total) {
  if (ir.spec.device.kind != DeviceKind::cpu || chain.phase != Phase::step || is_half(chain.dtype)) return false;
  if (total.each < 2 || chain.reads(to)) return false;
  // One thread adds up the same rows, so they are few, or there are others for the other threads.
  constexpr int64_t kFewElements = int64_t{1} << 15, kManySums = 8;
  if (total.each * chain.width > kFewElements && chain.rows / total.each < kManySums) return false;
  if (!holds_elements(ir, chain, to, chain.rows / total.each * (total.narrow ? 1 : chain.width))) return false;
  chain.totals.emplace(to, total);
  return true;
}

// Products of matrices by vectors: a row for each matrix, and sums of the products in each row; or an element for each
// row, and what the rows add up to.
static bool add_matrix_vector(const StepIr& ir, StepChain& chain, const StepOp& op) {
  const MatrixVector product = matrices_of(ir, op);
  if (product.matrices < 0) return false;
  const int from = op.in_slots[product.matrices], vector = op.in_slots[1 - product.matrices], to = op.out_slots[0];
  if (!has_rows(ir, chain, from, chain.width)) return false;
  const Shape& shape = ir.slots[from]->tensor.shape();
  const int64_t rows = shape[shape.rank() - 2];
  if (product.columns) {
    const int matrix = operand_of(ir, chain, from, shape), column = column_of(ir, chain, vector);
    if (matrix < 0 || column < 0) return false;
    chain.code.push_back({FusedCode::mul, matrix, column});
    return add_total(ir, chain, to, {static_cast<int>(chain.code.size()) - 1, rows, false});
  }
  if (!may_sum_rows(ir, chain) || !may_become_column(ir, chain, to)) return false;
  if (!holds_elements(ir, chain, vector, chain.rows / rows * chain.width)) return false;
  const int matrix = operand_of(ir, chain, from, shape);
  if (matrix < 0) return false;
  const int row = chain.source({vector, 0, chain.width, false, false, rows});
  chain.code.push_back({FusedCode::mul, matrix, row});
  add_row_sum(chain, static_cast<int>(chain.code.size()) - 1, to);
  return true;
}

// Sums of rows: to a shape that differs in the last dimension alone.
static bool add_sum_like(const StepIr& ir, StepChain& chain, const StepOp& op) {
  if (!op.op.spec->fits_output || ir.spec.device.kind != DeviceKind::cpu || chain.phase != Phase::step) return false;
  const int from = op.in_slots[0], to = op.out_slots[0];
  if (from < 0 || to < 0 || chain.width == 1 || !has_rows(ir, chain, from, chain.width) || !has_rows(ir, chain, to, 1))
    return false;
  const Shape& wide = ir.slots[from]->tensor.shape();
  if (!(ir.slots[to]->tensor.shape() == wide.with(wide.rank() - 1, 1)) || chain.writes(to)) return false;
  if (chain.reads(to)) return false;
  const int value = operand_of(ir, chain, from, wide);
  if (value < 0) return false;
  if (may_sum_rows(ir, chain)) {
    add_row_sum(chain, value, to);
  } else {
    chain.sums[to] = made_now(chain, value);
  }
  return true;
}

// Sums over the rows of each matrix, of which one row or one element is left.
static bool add_sum_of_matrix(const StepIr& ir, StepChain& chain, const StepOp& op) {
  if (!op.op.spec->fits_output) return false;
  const int from = op.in_slots[0], to = op.out_slots[0];
  if (from < 0 || to < 0 || !ir.slots[from]->typed || !ir.slots[to]->typed) return false;
  const Shape &wide = ir.slots[from]->tensor.shape(), &sum = ir.slots[to]->tensor.shape();
  if (const auto column = chain.columns.find(from); column != chain.columns.end()) {
    const int last = wide.rank() - 1;
    return last >= 0 && sum == wide.with(last, 1) && add_total(ir, chain, to, {column->second, wide[last], true});
  }
  if (wide.rank() < 2 || !has_rows(ir, chain, from, chain.width)) return false;
  const int rows = wide.rank() - 2;
  const bool is_row = sum == wide.with(rows, 1), is_element = sum == wide.with(rows, 1).with(rows + 1, 1);
  if (!is_row && !(is_element && may_sum_rows(ir, chain))) return false;
  int value = operand_of(ir, chain, from, wide);
  if (value < 0) return false;
  if (!is_row) {
    chain.code.push_back({FusedCode::row_sum, value, value});
    value = static_cast<int>(chain.code.size()) - 1;
  }
  return add_total(ir, chain, to, {made_now(chain, value), wide[rows], !is_row});
}

// Products of an element for each row by a row for each matrix.
static bool add_outer_product(const StepIr& ir, StepChain& chain, const StepOp& op) {
  if (ir.spec.device.kind != DeviceKind::cpu) return false;
  const int64_t rows = rows_of_products(ir, op);
  if (rows <= 0) return false;
  const int a = op.in_slots[0], b = op.in_slots[1], to = op.out_slots[0];
  if (!has_rows(ir, chain, to, chain.width) || chain.reads_columns_of(to)) return false;
  if (!holds_elements(ir, chain, b, chain.rows / rows * chain.width)) return false;
  const int column = column_of(ir, chain, a);
  if (column < 0) return false;
  const int row = chain.source({b, 0, chain.width, false, false, rows});
  chain.code.push_back({FusedCode::mul, column, row, 0, 0, true});
  chain.values[to] = static_cast<int>(chain.code.size()) - 1;
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
  if (!has_rows(ir, chain, to, at) || chain.writes(to) || chain.reads(to)) return false;
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
  const Shape& whole = ir.slots[op.out_slots[0]]->tensor.shape();
  if (whole.rank() == 0) return false;
  const Shape part = whole.with(whole.rank() - 1, chain.width);
  std::vector<ChainPart> parts;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < 0) continue;
    const int value = operand_of(ir, chain, op.in_slots[i], part);
    if (value < 0) return false;
    parts.push_back({made_now(chain, value), columns[i], chain.width});
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
  if (const MatrixVector product = matrices_of(ir, op); product.matrices >= 0) return op.in_slots[product.matrices];
  const auto made = std::ranges::find_if(op.out_slots, [](int s) { return s >= 0; });
  return made == op.out_slots.end() ? -1 : *made;
}

static bool add_to_chain(const StepIr& ir, StepChain& chain, size_t index) {
  const StepOp& op = *ir.ops[index];
  if (!op.kernel || op.plain_copy || op.nested || op.accumulate != 0) return false;
  if (!chain.ops.empty() && ir.ops[chain.ops.back()]->stage != op.stage) return false;
  if (op.op.spec->random || op.op.spec->side_effect || op.in_slots.empty() || op.out_slots.empty()) return false;
  if (chain.sources.size() + op.in_slots.size() + 8 > kMostFusedTensors || chain.code.size() + 8 > kMostFusedValues)
    return false;
  if (chain.ops.empty()) {
    const int like = chain_begin(ir, op);
    if (like < 0) return false;
    const Tensor& first = ir.slots[like]->tensor;
    if (!is_floating(first.dtype()) || first.size() == 0) return false;
    chain.phase = op.phase;
    chain.dtype = first.dtype();
    chain.width = last_dim(first);
    if (chain.width < kNarrow) return false;
    chain.rows = first.size() / chain.width;
  }
  StepChain longer = chain;
  if (!add_filled(ir, longer, op) && !add_elementwise(ir, longer, op) && !add_outer_product(ir, longer, op) &&
      !add_matrix_vector(ir, longer, op) && !add_on_columns(ir, longer, op) && !add_reshaped_column(ir, longer, op) &&
      !add_sum_like(ir, longer, op) && !add_sum_of_matrix(ir, longer, op) && !add_taken_columns(ir, longer, op) &&
      !add_put_columns(ir, longer, index))
    return false;
  if (longer.code.size() > kMostFusedValues) return false;
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
    if (ir.columns_of(op, false).empty()) continue;
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
    if (!next || ir.ops[*next]->stage != op.stage || ir.ops[*next]->phase != op.phase) continue;
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

namespace {

// Which operators of a list wait for which, as indices in it: for who writes what they read, and who reads or writes
// what they write, in the order of the list. Of tensors outside, any row stands for all.
struct Waiting {
  std::vector<std::vector<size_t>> next;
  std::vector<int> count;  // for so many

  Waiting(const StepIr& ir, const std::vector<size_t>& list) : next(list.size()), count(list.size()) {
    for (size_t i = 0; i < list.size(); ++i) {
      const StepOp& op = *ir.ops[list[i]];
      for (const int s : op.in_slots) use(ir, s, i, false);
      for (const int s : op.out_slots) use(ir, s, i, true);
    }
  }

 private:
  struct Users {
    std::optional<size_t> writer;
    std::vector<size_t> readers;  // since then
  };

  void use(const StepIr& ir, int slot, size_t i, bool writes) {
    if (slot < 0) return;
    const StepSlot& s = *ir.slots[slot];
    const bool shares = s.kind == Kind::link || s.kind == Kind::slab;
    const void* key = shares && s.whole.storage() ? static_cast<const void*>(s.whole.storage().get()) : &s;
    Users& users = users_[key];
    if (users.writer) wait(*users.writer, i);
    if (!writes) {
      users.readers.push_back(i);
      return;
    }
    for (const size_t reader : users.readers) wait(reader, i);
    users = {i, {}};
  }
  void wait(size_t first, size_t second) {
    if (first == second) return;
    next[first].push_back(second);
    ++count[second];
  }

  std::map<const void*, Users> users_;
};

// What operators of one chain have in common; none of an operator that is in no chain.
std::optional<std::pair<int64_t, int64_t>> rows_in_chain(const StepIr& ir, const StepOp& op) {
  const auto made = std::ranges::find_if(op.out_slots, [](int s) { return s >= 0; });
  if (made == op.out_slots.end() || !op.kernel || op.accumulate != 0 || !ir.slots[*made]->typed) return {};
  const bool is_elementwise =
      op.op.spec->fused && !op.op.spec->fused(op.op.args.get(), static_cast<int>(op.in_slots.size())).empty();
  if (!is_elementwise && !op.op.spec->outer_product && ir.columns_of(op, false).empty() &&
      ir.columns_of(op, true).empty())
    return {};
  const Tensor& t = ir.slots[*made]->tensor;
  return std::pair{t.size(), last_dim(t)};
}

}  // namespace

// In what runs for a block of timesteps, brings operators together that may be one chain: of those that wait for none,
// first all that are in no chain, then the first one that is, and with it all of the same rows.
static void gather_chains(StepIr& ir, const std::vector<size_t>& list) {
  Waiting waiting(ir, list);
  std::set<size_t> apart;                                         // in no chain
  std::map<std::pair<int64_t, int64_t>, std::set<size_t>> ready;  // by rows
  std::vector<std::optional<std::pair<int64_t, int64_t>>> rows;
  for (const size_t i : list) rows.push_back(rows_in_chain(ir, *ir.ops[i]));
  const auto add = [&](size_t i) { (rows[i] ? ready[*rows[i]] : apart).insert(i); };
  for (size_t i = 0; i < list.size(); ++i)
    if (waiting.count[i] == 0) add(i);
  std::vector<size_t> order;
  const auto take_from = [&](std::set<size_t>& from) {
    const size_t i = *from.begin();
    from.erase(from.begin());
    order.push_back(i);
    for (const size_t n : waiting.next[i])
      if (--waiting.count[n] == 0) add(n);
  };
  while (order.size() < list.size()) {
    while (!apart.empty()) take_from(apart);
    const auto first = std::ranges::min_element(ready, {}, [](const auto& r) {
      return r.second.empty() ? std::numeric_limits<size_t>::max() : *r.second.begin();
    });
    if (first == ready.end()) break;
    while (!first->second.empty()) take_from(first->second);
  }
  std::vector<std::unique_ptr<StepOp>> moved;
  for (const size_t i : order) moved.push_back(std::move(ir.ops[list[i]]));
  for (size_t i = 0; i < list.size(); ++i) ir.ops[list[i]] = std::move(moved[i]);
}

static void gather_chains_of_blocks(StepIr& ir) {
  std::map<std::pair<Phase, int>, std::vector<size_t>> lists;
  for (size_t i = 0; i < ir.ops.size(); ++i)
    if (ir.ops[i]->phase != Phase::step) lists[{ir.ops[i]->phase, ir.ops[i]->stage}].push_back(i);
  for (const auto& [where, list] : lists) gather_chains(ir, list);
}

// Returns which operators are part of another one now.
static std::vector<bool> close_chains(StepIr& ir) {
  const KnownUses known(ir);
  std::vector<bool> gone(ir.ops.size(), false);
  for (const Phase phase : {Phase::before, Phase::step, Phase::after}) {
    std::vector<size_t> list;
    for (size_t i = 0; i < ir.ops.size(); ++i)
      if (ir.ops[i]->phase == phase) list.push_back(i);
    for (size_t first = 0, end; first < list.size(); first = end) {
      StepChain chain;
      for (end = first; end < list.size() && add_to_chain(ir, chain, list[end]);) ++end;
      if (close_chain(ir, chain)) {
        for (size_t i = 0; i + 1 < chain.ops.size(); ++i) gone[chain.ops[i]] = true;
      } else if (end == first || !chain.columns.empty() || !chain.totals.empty()) {
        end = first + 1;  // what follows may be a chain without a product of matrices
      }
    }
  }
  return gone;
}

void fuse_chains(StepIr& ir) {
  gather_chains_of_blocks(ir);
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

static bool fuses_matrices(const StepIr& ir) { return ir.spec.device.kind == DeviceKind::cpu && ir.runs_pass("fuse"); }

bool makes_matrices(const StepIr& ir, const StepOp& op) {
  return fuses_matrices(ir) && rows_of_products(ir, op) > 0 && last_dim(ir.slots[op.out_slots[0]]->tensor) >= kNarrow;
}

bool reads_matrices(const StepIr& ir, const StepOp& op) {
  if (!fuses_matrices(ir)) return false;
  const int which = matrices_of(ir, op).matrices;
  if (which < 0) return false;
  const int64_t width = last_dim(ir.slots[op.in_slots[which]]->tensor);
  return width >= kNarrow && width <= kFusedPiece;
}

// Whether the operator's output has several elements for each of all that it reads and that changes over time.
static bool expands(const StepIr& ir, const StepOp& op) {
  int64_t most = 1;
  for (const int s : op.in_slots)
    if (s >= 0 && ir.varies(s)) most = std::max(most, ir.slots[s]->tensor.size());
  return ir.slots[op.out_slots[0]]->tensor.size() >= 2 * most;
}

bool is_cheap(const OpSpec& spec, const void* args, int inputs) {
  constexpr double kLoad = 0.2;  // nanoseconds, about what an element takes that comes from memory
  if (!spec.fused) return false;
  const FusedBody body = spec.fused(args, inputs);
  return !body.empty() && fused_nanoseconds({body.data(), body.size()}) <= kLoad;
}

// Whether operators of a timestep read all that the operator reads and that changes over time.
static bool is_read_in_steps(const StepIr& ir, size_t index) {
  const StepOp& op = *ir.ops[index];
  return std::ranges::all_of(op.in_slots, [&](int s) {
    return s < 0 || !ir.varies(s) || std::ranges::any_of(ir.users(s), [&](size_t u) {
             const StepOp& user = *ir.ops[u];
             return user.phase == Phase::step && user.stage == op.stage && user.reads(s);
           });
  });
}

// Matrices that are made of vectors for chains of a timestep alone, and what is computed of them, are less work there
// than what it takes to store and to read them; and so is what little arithmetic makes of what timesteps read anyway.
void keep_cheap_in_steps(StepIr& ir) {
  if (ir.spec.device.kind != DeviceKind::cpu) return;
  const KnownUses known(ir);
  std::vector<bool> may(ir.ops.size(), false), moves(ir.ops.size(), false);
  for (size_t i = ir.ops.size(); i-- > 0;) {
    const StepOp& op = *ir.ops[i];
    if (op.phase != Phase::before || op.out_slots.size() != 1 || op.out_slots[0] < 0) continue;
    if (!rows_in_chain(ir, op) || !ir.columns_of(op, false).empty() || !ir.columns_of(op, true).empty()) continue;
    const StepSlot& made = *ir.slots[op.out_slots[0]];
    if (made.kind != Kind::scratch && made.kind != Kind::slab) continue;
    may[i] = std::ranges::all_of(ir.users(op.out_slots[0]), [&](size_t u) {
      const StepOp& user = *ir.ops[u];
      return u == i || (user.stage == op.stage && rows_in_chain(ir, user) && (user.phase == Phase::step || may[u]));
    });
  }
  for (size_t i = 0; i < ir.ops.size(); ++i) {
    if (!may[i]) continue;
    const auto is_kept = [&](int s) {
      return s >= 0 && std::ranges::any_of(ir.writers(s), [&](size_t w) { return w != i && moves[w]; });
    };
    const StepOp& op = *ir.ops[i];
    moves[i] =
        expands(ir, op) || std::ranges::any_of(op.in_slots, is_kept) ||
        (is_cheap(*op.op.spec, op.op.args.get(), static_cast<int>(op.in_slots.size())) && is_read_in_steps(ir, i));
  }
  for (size_t i = 0; i < ir.ops.size(); ++i)
    if (moves[i]) ir.ops[i]->phase = Phase::step;
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
