// A pass over a StepProgram: elementwise operators that follow one another in a timestep become one loop over pieces of
// rows (core/fused.h). Slices of columns are read where they are, and a sum of gradients of such slices that fill a
// tensor is written as they come. What only the chain itself reads has no tensor any more.
#include <algorithm>
#include <functional>

#include "core/fused.h"
#include "core/parallel.h"
#include "recurrent/step_program.h"

namespace stepnet {

using Kind = StepSlot::Kind;

// Columns of a slot's rows; a vector has the same for all rows.
struct StepProgram::Place {
  int slot = -1;
  int64_t column = 0, row_size = 0;
  bool vector = false;
  bool operator==(const Place&) const = default;
};

namespace {

// A result's number is its instruction's; sources count from here.
constexpr int kSource = 1 << 20;

constexpr int64_t kNarrow = 8;  // rows of fewer elements are faster one operator after the other

template <class T, class Place>
void run_chain(const std::vector<Place>& places, size_t sources, const std::vector<FusedInstruction>& code,
               int64_t width, Call& call) {
  FusedOperand<T> tensors[kMostFusedTensors];
  for (size_t p = 0; p < places.size(); ++p) {
    const auto i = static_cast<int>(p);
    T* first = p < sources ? const_cast<T*>(call.in_span<T>(i).data())  // is only read
                           : call.out_span<T>(i - static_cast<int>(sources)).data();
    tensors[p] = {first + places[p].column, places[p].vector ? 0 : places[p].row_size};
  }
  const int64_t rows = call.out(0).size() / std::max<int64_t>(places[sources].row_size, 1);
  const FusedLoop<T> loop{code.data(), static_cast<int>(code.size()), tensors, static_cast<int>(places.size()), width};
  double cost = 0;
  for (const FusedInstruction& i : code) cost += fused_nanoseconds(i.code);
  const auto range = [&](int64_t begin, int64_t end) { fused_kernels().run(loop, begin, end); };
  parallel_for(rows * fused_pieces(width), cost * kFusedPiece, std::ref(range));
}

}  // namespace

// A chain while it grows.
struct StepProgram::Chain {
  struct Part {  // of a tensor that gradients of slices fill
    int value;
    int64_t column, size;
  };
  std::vector<size_t> ops;
  DType dtype = DType::undefined;
  int64_t rows = 0, width = 0;
  std::vector<Place> sources;
  std::vector<FusedInstruction> code;       // operands: numbers of instructions, or kSource + source
  std::map<int, int> values;                // what the slot holds now
  std::map<int, std::vector<Part>> padded;  // slots that are zero but for some columns
  std::map<int, std::vector<Part>> filled;  // slots that parts make up

  int source(const Place& place) {
    const auto known = std::ranges::find(sources, place);
    if (known != sources.end()) return kSource + static_cast<int>(known - sources.begin());
    sources.push_back(place);
    return kSource + static_cast<int>(sources.size()) - 1;
  }
  bool writes(int slot) const { return values.count(slot) > 0 || padded.count(slot) > 0 || filled.count(slot) > 0; }
  bool reads_columns_of(int slot) const {
    return std::ranges::any_of(sources, [&](const Place& p) { return p.slot == slot && p.row_size != width; });
  }
};

// The first column that a slice takes, or that its gradient puts; -1 if the operator is no such.
int64_t StepProgram::first_column(const Op& op, bool puts) const {
  const auto& fn = puts ? op.op.spec->puts_columns : op.op.spec->takes_columns;
  if (!fn || !op.kernel || op.plain_copy) return -1;
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

namespace {

int64_t last_dim(const Tensor& t) { return t.rank() > 0 ? t.dim(t.rank() - 1) : 1; }

}  // namespace

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

bool StepProgram::add_slice(Chain& chain, const Op& op) const {
  const int64_t column = first_column(op, false);
  const int from = op.in_slots.empty() ? -1 : op.in_slots[0];
  if (column < 0 || from < 0 || chain.writes(from) || !has_rows(chain, op.out_slots[0], chain.width)) return false;
  const int64_t size = last_dim(slots_[from]->tensor);
  if (size == chain.width || !has_rows(chain, from, size)) return false;
  chain.values[op.out_slots[0]] = chain.source({from, column, size, false});
  return true;
}

// Whether a sum reads the slot next, and nobody what is in it now after that.
bool StepProgram::is_summed_next(size_t index, int slot) const {
  size_t sum = index + 1;
  while (sum < ops_.size() && std::ranges::count(ops_[sum]->in_slots, slot) == 0) {
    if (std::ranges::count(ops_[sum]->out_slots, slot) > 0) return false;
    ++sum;
  }
  if (sum == ops_.size() || !ops_[sum]->op.spec->sums_inputs || std::ranges::count(ops_[sum]->in_slots, slot) != 1)
    return false;
  if (std::ranges::count(ops_[sum]->out_slots, slot) > 0) return true;
  return std::ranges::none_of(ops_.begin() + static_cast<std::ptrdiff_t>(sum) + 1, ops_.end(),
                              [&](const auto& later) { return std::ranges::count(later->in_slots, slot) > 0; });
}

bool StepProgram::add_slice_gradient(Chain& chain, size_t index) const {
  const Op& op = *ops_[index];
  const int64_t column = first_column(op, true);
  if (column < 0) return false;
  const int to = op.out_slots[0];
  int value = operand_of(chain, op.in_slots[1]);
  if (value < 0 || !has_rows(chain, to, last_dim(slots_[to]->tensor))) return false;
  if (chain.writes(to) || !is_summed_next(index, to)) return false;
  if (value >= kSource) {  // copied now, because an operator after this one may write there
    chain.code.push_back({FusedCode::copy, value, value});
    value = static_cast<int>(chain.code.size()) - 1;
  }
  chain.padded[to] = {{value, column, chain.width}};
  return true;
}

// A sum of gradients of slices that fill their tensor, each column once.
bool StepProgram::add_filled(Chain& chain, const Op& op) const {
  if (!op.op.spec->sums_inputs || op.out_slots.size() != 1) return false;
  std::vector<Chain::Part> parts;
  for (const int s : op.in_slots) {
    const auto part = chain.padded.find(s);
    if (part == chain.padded.end()) return false;
    parts.insert(parts.end(), part->second.begin(), part->second.end());
  }
  std::ranges::sort(parts, {}, &Chain::Part::column);
  int64_t at = 0;
  for (const Chain::Part& p : parts) {
    if (p.column != at) return false;
    at += p.size;
  }
  const int to = op.out_slots[0];
  for (const int s : op.in_slots) chain.padded.erase(s);
  if (!has_rows(chain, to, at) || chain.writes(to) || chain.reads_columns_of(to)) return false;
  for (const Place& p : chain.sources)
    if (p.slot == to) return false;
  chain.filled[to] = std::move(parts);
  return true;
}

bool StepProgram::add_to_chain(Chain& chain, size_t index) const {
  const Op& op = *ops_[index];
  if (op.phase != Phase::step || !op.kernel || op.plain_copy || op.nested || op.accumulate != 0) return false;
  if (op.op.spec->random || op.op.spec->side_effect || op.in_slots.empty() || op.out_slots.size() != 1) return false;
  if (chain.sources.size() + op.in_slots.size() + 8 > kMostFusedTensors || chain.code.size() + 8 > kMostFusedValues)
    return false;
  if (chain.ops.empty()) {
    const int like = first_column(op, true) >= 0 ? op.in_slots[1] : op.out_slots[0];
    if (like < 0) return false;
    const Tensor& first = slots_[like]->tensor;
    if (!is_floating(first.dtype()) || first.size() == 0) return false;
    chain.dtype = first.dtype();
    chain.width = last_dim(first);
    if (chain.width < kNarrow) return false;
    chain.rows = first.size() / chain.width;
  }
  Chain longer = chain;
  if (!add_filled(longer, op) && !add_elementwise(longer, op) && !add_slice(longer, op) &&
      !add_slice_gradient(longer, index))
    return false;
  longer.ops.push_back(index);
  chain = std::move(longer);
  return true;
}

// Whether anything but the chain sees the slot's value.
bool StepProgram::is_seen(const Chain& chain, int slot) const {
  if (slots_[slot]->kind != Kind::scratch) return true;
  for (size_t i = 0; i < ops_.size(); ++i)
    if (std::ranges::count(chain.ops, i) == 0 && std::ranges::count(ops_[i]->in_slots, slot) > 0) return true;
  return false;
}

// Gives every result a place in a tensor or among the values in between, which are used again.
void StepProgram::place_results(Chain& chain, std::vector<Place>& results) const {
  constexpr int kNowhere = -1;
  const auto put = [&](int value, const Place& place) {
    const int to = static_cast<int>(results.size());
    results.push_back(place);
    if (value < kSource && chain.code[value].to == kNowhere) {
      chain.code[value].to = kSource + static_cast<int>(chain.sources.size()) + to;
    } else {
      chain.code.push_back({FusedCode::copy, value, value, 0, kSource + static_cast<int>(chain.sources.size()) + to});
    }
  };
  for (FusedInstruction& i : chain.code) i.to = kNowhere;
  for (const auto& [slot, value] : chain.values)
    if (is_seen(chain, slot)) put(value, {slot, 0, chain.width, false});
  for (const auto& [slot, parts] : chain.filled)
    for (const Chain::Part& p : parts) put(p.value, {slot, p.column, last_dim(slots_[slot]->tensor), false});
}

namespace {

// From numbers of instructions and sources to indices of operands: tensors first, then values in between.
void number_operands(std::vector<FusedInstruction>& code, int tensors) {
  std::vector<size_t> last_use(code.size(), 0);
  for (size_t i = 0; i < code.size(); ++i)
    for (const int operand : {code[i].a, code[i].b})
      if (operand < kSource) last_use[operand] = i;
  std::vector<int> index(code.size()), free;
  int used = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    FusedInstruction& made = code[i];
    std::vector<int> ended;
    for (int* operand : {&made.a, &made.b}) {
      const int number = *operand;
      *operand = number >= kSource ? number - kSource : index[number];
      if (number < kSource && last_use[number] == i && *operand >= tensors) ended.push_back(*operand);
    }
    if (made.to >= kSource) {
      index[i] = made.to - kSource;
    } else if (!free.empty()) {
      index[i] = free.back();
      free.pop_back();
    } else {
      index[i] = tensors + used++;
    }
    made.to = index[i];
    std::ranges::sort(ended);
    ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
    free.insert(free.end(), ended.begin(), ended.end());
  }
}

}  // namespace

// Whether a result's row is also shown under another name, so that the order of reading and writing would matter.
bool StepProgram::is_shared(const std::vector<Place>& places, const Place& result) const {
  const StepSlot& mine = *slots_[result.slot];
  return std::ranges::any_of(places, [&](const Place& p) {
    const StepSlot& other = *slots_[p.slot];
    return p.slot != result.slot && mine.kind == Kind::link && other.kind == Kind::link &&
           other.whole.storage() == mine.whole.storage() && (other.base == mine.base || mine.cycle > 0);
  });
}

// Puts one operator in the place of the chain's last one; the others are removed by the caller.
bool StepProgram::close_chain(Chain& chain) {
  if (chain.ops.size() < 2 || !chain.padded.empty()) return false;
  std::vector<Place> places = chain.sources, results;
  place_results(chain, results);
  if (results.empty() || places.size() + results.size() > kMostFusedTensors) return false;
  const size_t sources = places.size();
  if (std::ranges::any_of(results, [&](const Place& r) { return is_shared(places, r) || is_shared(results, r); }))
    return false;
  places.insert(places.end(), results.begin(), results.end());
  number_operands(chain.code, static_cast<int>(places.size()));
  Op& op = *ops_[chain.ops.back()];
  op.in_slots.clear();
  op.out_slots.clear();
  for (size_t p = 0; p < places.size(); ++p) (p < sources ? op.in_slots : op.out_slots).push_back(places[p].slot);
  op.fused = std::make_unique<Kernel>();
  op.fused->run = [places, sources, code = chain.code, width = chain.width, dtype = chain.dtype](const void*, Call& c) {
    if (dtype == DType::float32) {
      run_chain<float>(places, sources, code, width, c);
    } else {
      run_chain<double>(places, sources, code, width, c);
    }
  };
  op.kernel = op.fused.get();
  return true;
}

void StepProgram::fuse_chains() {
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
  std::vector<std::unique_ptr<Op>> left;
  for (size_t i = 0; i < ops_.size(); ++i)
    if (!gone[i]) left.push_back(std::move(ops_[i]));
  ops_ = std::move(left);
  for (size_t s = 0; s < slots_.size(); ++s) {
    const bool own = slots_[s]->kind == Kind::scratch || slots_[s]->kind == Kind::block;
    if (own && !is_total(static_cast<int>(s)) && uses_of(static_cast<int>(s)) == 0) slots_[s]->unused = true;
  }
}

// A slice of columns that only operators of a timestep read is no work there, so it is not worth running before.
void StepProgram::keep_slices_in_steps() {
  for (const auto& op : ops_) {
    if (op->phase != Phase::before || first_column(*op, false) < 0) continue;
    const bool in_steps = std::ranges::all_of(ops_, [&](const auto& reader) {
      return reader->phase == Phase::step || std::ranges::count(reader->in_slots, op->out_slots[0]) == 0;
    });
    if (in_steps) op->phase = Phase::step;
  }
}

}  // namespace stepnet
