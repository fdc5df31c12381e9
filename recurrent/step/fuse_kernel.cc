// The end of a chain: every result gets a place, and one operator runs all of it.
#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "core/compute/backend.h"
#include "core/compute/threads.h"
#include "core/tensor/dry_device.h"
#include "recurrent/step/fuse.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

namespace {

bool sums_rows(const FusedInstruction& i) { return i.code == FusedCode::row_sum || i.code == FusedCode::row_product; }

// The rows of a call, and how wide they are: those that follow one another everywhere are one, if none is summed.
struct RowsOfChain {
  int64_t count = 0, width = 0;
};
RowsOfChain rows_of_chain(const std::vector<ChainPlace>& places, size_t sources,
                          const std::vector<FusedInstruction>& code, int64_t width, int64_t elements) {
  const ChainPlace& result = places[sources];
  const int64_t rows = elements / std::max<int64_t>(result.row_size, 1) * result.each;
  const bool dense = std::ranges::none_of(code, sums_rows) && std::ranges::all_of(places, [=](const ChainPlace& p) {
                       return p.row_size == width && !p.one_row && !p.one_column && p.each == 1 && p.cycle == 0;
                     });
  return dense ? RowsOfChain{1, width * rows} : RowsOfChain{rows, width};
}

void run_on_device(const FusedChain& chain, DType dtype, const std::vector<ChainPlace>& places, size_t sources,
                   const RowsOfChain& rows, Call& call) {
  FusedOperand<void> tensors[kMostFusedTensors];
  for (size_t p = 0; p < places.size(); ++p) {
    const auto i = static_cast<int>(p);
    const std::byte* first =
        p < sources ? call.in(i).raw() : std::as_const(call.out(i - static_cast<int>(sources))).raw();
    tensors[p] = {const_cast<std::byte*>(first) + static_cast<size_t>(places[p].column) * dtype_size(dtype),
                  places[p].stride(), places[p].step()};
  }
  chain.run(std::span(tensors, places.size()), rows.width, rows.count);
}

// How many pieces have all of what is summed, and begin where a sum does.
int64_t pieces_together(const std::vector<ChainPlace>& places, size_t sources, int64_t width) {
  const int64_t at_once = fused_rows_at_once(width);
  int64_t rows = at_once;
  bool sums = false;
  for (size_t p = sources; p < places.size(); ++p) {
    rows = std::lcm(rows, places[p].each);
    sums |= places[p].sums || places[p].each > 1;
  }
  if (at_once > 1) return rows / at_once;
  return sums ? rows * fused_pieces_of_row(width) : 1;
}

template <class T>
FusedOperand<T> operand_at(const ChainPlace& place, T* first) {
  return {first + place.column, place.stride(), place.step(), place.each,  place.cycle,
          place.sums,           place.narrow,   place.value,  place.weight};
}

template <class T>
FusedLoop<T> loop_on(const FusedOperand<T>* tensors, const std::vector<ChainPlace>& places, size_t sources,
                     const std::vector<FusedInstruction>& code, const RowsOfChain& rows) {
  return {code.data(), static_cast<int>(code.size()), tensors,   static_cast<int>(places.size()),
          rows.width,  static_cast<int>(sources),     rows.count};
}

template <class T>
void run_chain(const std::vector<ChainPlace>& places, size_t sources, const std::vector<FusedInstruction>& code,
               const RowsOfChain& rows, Call& call) {
  FusedOperand<T> tensors[kMostFusedTensors];
  for (size_t p = 0; p < places.size(); ++p) {
    const auto i = static_cast<int>(p);
    T* first = p < sources ? const_cast<T*>(call.in_span<T>(i).data())  // is only read
                           : call.out_span<T>(i - static_cast<int>(sources)).data();
    tensors[p] = operand_at(places[p], first);
  }
  const FusedLoop<T> loop = loop_on<T>(tensors, places, sources, code, rows);
  const int64_t together = pieces_together(places, sources, rows.width), pieces = fused_pieces(rows.count, rows.width);
  const auto range = [&](int64_t begin, int64_t end) {
    fused_kernels().run(loop, begin * together, std::min(end * together, pieces));
  };
  parallel_for((pieces + together - 1) / together,
               static_cast<double>(together) * fused_nanoseconds(code) * kFusedPiece, std::ref(range));
}

// Elements in front of a piece of rows that follow one another.
int64_t elements_before(int64_t piece, const RowsOfChain& rows) {
  if (const int64_t at_once = fused_rows_at_once(rows.width); at_once > 1)
    return std::min(piece * at_once, rows.count) * rows.width;
  const int64_t of_row = fused_pieces_of_row(rows.width);
  return piece / of_row * rows.width + piece % of_row * kFusedPiece;
}

// A range of pieces through all timesteps, so that threads meet once, and what is done for a timestep is little more
// than the arithmetic.
template <class T>
void run_chain_steps(const std::vector<ChainPlace>& places, size_t sources, const std::vector<FusedInstruction>& code,
                     const RowsOfChain& rows, const ChainSteps& steps) {
  const int64_t pieces = fused_pieces(rows.count, rows.width);
  const auto range = [&](int64_t begin, int64_t end) {
    FusedOperand<T> tensors[kMostFusedTensors];
    const FusedLoop<T> loop = loop_on<T>(tensors, places, sources, code, rows);
    const int64_t first = elements_before(begin, rows), count = elements_before(end, rows) - first;
    for (int64_t t = 0; t < steps.steps; ++t) {
      std::byte* const* const at = &steps.operands[static_cast<size_t>(t) * places.size()];
      for (size_t p = 0; p < places.size(); ++p) tensors[p] = operand_at(places[p], reinterpret_cast<T*>(at[p]));
      fused_kernels().run(loop, begin, end);
      if (steps.made) steps.made(t, first, count);
    }
  };
  parallel_for(pieces, static_cast<double>(steps.steps) * fused_nanoseconds(code) * kFusedPiece, std::ref(range));
}

// Whether the chain makes each element of a result from the same element of what it writes, and of what it does not
// write from anything: then an element may go through timesteps without waiting for the others.
bool elements_are_apart(const StepIr& ir, const std::vector<ChainPlace>& places, size_t sources,
                        const std::vector<FusedInstruction>& code, int64_t width) {
  const auto works_on_rows = [](const FusedInstruction& i) { return sums_rows(i) || i.narrow || i.column; };
  if (std::ranges::any_of(code, works_on_rows)) return false;
  const auto is_whole = [&](const ChainPlace& p) {
    return p.row_size == width && p.column == 0 && !p.one_row && !p.one_column && p.each == 1 && p.cycle == 0 &&
           !p.sums && !p.narrow && p.value < 0;
  };
  // Rows of links to one tensor are the same ones, or have no element in common.
  const auto meet_in_rows = [](const StepSlot& a, const StepSlot& b) {
    return a.stride == b.stride && a.stride == a.tensor.bytes() && b.stride == b.tensor.bytes() &&
           static_cast<int64_t>(a.base - b.base) % static_cast<int64_t>(a.stride) == 0;
  };
  for (size_t r = sources; r < places.size(); ++r) {
    if (!is_whole(places[r])) return false;
    const StepSlot& made = *ir.slots[places[r].slot];
    for (const ChainPlace& p : places) {
      const StepSlot& other = *ir.slots[p.slot];
      const bool links = made.kind == Kind::link && other.kind == Kind::link;
      if (&made != &other && !(links && made.whole.storage() == other.whole.storage())) continue;
      if (!is_whole(p) || (links && !meet_in_rows(made, other))) return false;
    }
  }
  return true;
}

}  // namespace

// True if the operator needs what is in the slot: it reads it, or adds to it.
static bool needs(const StepOp& op, int slot) {
  if (std::ranges::count(op.in_slots, slot) > 0) return true;
  for (size_t o = 0; o < op.out_slots.size(); ++o)
    if (op.out_slots[o] == slot && (op.accumulate >> o & 1) != 0) return true;
  return false;
}

// Whether anything but the chain sees the slot's value: operators of a timestep in front of it have seen one before.
static bool is_seen(const StepIr& ir, const StepChain& chain, int slot) {
  const Kind kind = ir.slots[slot]->kind;
  const std::vector<size_t>& all = ir.users(slot);
  if (kind == Kind::block && chain.phase != Phase::step)
    return !std::ranges::all_of(all, [&](size_t i) { return std::ranges::binary_search(chain.ops, i); });
  if (kind != Kind::scratch) return true;
  return std::any_of(std::ranges::upper_bound(all, chain.ops.front()), all.end(),
                     [&](size_t i) { return !std::ranges::binary_search(chain.ops, i) && needs(*ir.ops[i], slot); });
}

// Gives every result a place in a tensor or among the values in between, which are used again.
static void place_results(const StepIr& ir, StepChain& chain, std::vector<ChainPlace>& results) {
  constexpr int kNowhere = -1;
  const auto put = [&](int value, const ChainPlace& place) {
    const int to = static_cast<int>(results.size());
    results.push_back(place);
    if (value < kSource && chain.code[value].to == kNowhere) {
      chain.code[value].to = kSource + static_cast<int>(chain.sources.size()) + to;
    } else {
      chain.code.push_back({FusedCode::copy, value, value, 0, kSource + static_cast<int>(chain.sources.size()) + to});
      chain.code.back().narrow = place.narrow;
    }
  };
  for (FusedInstruction& i : chain.code) i.to = kNowhere;
  for (const auto& [slot, value] : chain.values)
    if (is_seen(ir, chain, slot)) put(value, {slot, 0, chain.width});
  for (const auto& [slot, value] : chain.columns)
    if (is_seen(ir, chain, slot)) put(value, narrow_place(slot));
  for (const auto& [slot, value] : chain.sums)
    if (is_seen(ir, chain, slot)) put(value, {.slot = slot, .row_size = 1, .one_column = true, .sums = true});
  for (const auto& [slot, total] : chain.totals) {
    ChainPlace place = total.narrow ? narrow_place(slot) : ChainPlace{slot, 0, chain.width};
    place.each = total.each;
    place.value = total.value;
    if (is_seen(ir, chain, slot)) results.push_back(place);
  }
  for (const auto& [slot, parts] : chain.filled)
    for (const ChainPart& p : parts) put(p.value, {slot, p.column, last_dim(ir.slots[slot]->tensor)});
}

namespace {

// The operands of an instruction that it reads.
std::vector<int> operands_of(const FusedInstruction& i) {
  std::vector<int> operands = {i.a};
  if (fused_code(i.code).reads_b) operands.push_back(i.b);
  if (reads_c(i.code)) operands.push_back(i.c);
  return operands;
}

// From numbers of instructions and sources to indices of operands: tensors first, then values in between. What rows
// that are added up have stays until the end.
void number_operands(std::vector<FusedInstruction>& code, int tensors, std::vector<ChainPlace>& places) {
  std::vector<size_t> last_use(code.size(), 0);
  for (FusedInstruction& i : code) {
    if (!fused_code(i.code).reads_b) i.b = i.a;
    if (!reads_c(i.code)) i.c = i.a;
  }
  for (size_t i = 0; i < code.size(); ++i)
    for (const int operand : operands_of(code[i]))
      if (operand < kSource) last_use[operand] = i;
  for (const ChainPlace& p : places)
    for (const int operand : {p.value, p.weight})
      if (operand >= 0 && operand < kSource) last_use[operand] = code.size();
  std::vector<int> index(code.size()), free;
  int used = 0;
  const auto index_of = [&](int number) { return number >= kSource ? number - kSource : index[number]; };
  for (size_t i = 0; i < code.size(); ++i) {
    FusedInstruction& made = code[i];
    std::vector<int> ended;
    for (int* operand : {&made.a, &made.b, &made.c}) {
      const int number = *operand;
      *operand = index_of(number);
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
  for (ChainPlace& p : places)
    for (int* operand : {&p.value, &p.weight})
      if (*operand >= 0) *operand = index_of(*operand);
}

// Makes the code shorter: columns are not spread where an instruction takes them as they are; products are joined with
// the sum, the sum of a row or that of rows that alone reads them, so that they are not stored in between.
class ShorterCode {
 public:
  ShorterCode(StepChain& chain, std::vector<ChainPlace>& results)
      : chain_(chain), results_(results), uses_(chain.code.size(), 0) {
    for (const FusedInstruction& i : chain.code)
      for (const int operand : operands_of(i)) use(operand);
    for (const ChainPlace& r : results) use(r.value);
  }

  void make() {
    for (FusedInstruction& i : chain_.code) take_column(i);
    for (FusedInstruction& i : chain_.code) {
      if (i.code == FusedCode::add && !i.column && is_product(i.a)) {
        join(i, FusedCode::product_sum, i.a, i.b);
      } else if (i.code == FusedCode::add && !i.column && is_product(i.b)) {
        join(i, FusedCode::product_sum, i.b, i.a);
      } else if (i.code == FusedCode::sub && is_product(i.b)) {
        join(i, FusedCode::less_product, i.b, i.a);
      } else if (i.code == FusedCode::row_sum && is_product(i.a) && !chain_.code[i.a].column) {
        join(i, FusedCode::row_product, i.a, i.a);
      }
    }
    for (ChainPlace& r : results_)
      if (r.value >= 0) join_total(r);
    remove_unread();
  }

 private:
  void use(int number) {
    if (number >= 0 && number < kSource) ++uses_[number];
  }
  // Whether the chain does not write over it: what an instruction makes, or a source that is no result.
  bool stays(int operand) const {
    return operand < kSource || std::ranges::none_of(results_, [&](const ChainPlace& r) {
             return r.slot == chain_.sources[operand - kSource].slot;
           });
  }
  const FusedInstruction* made_by(int number, FusedCode code) const {
    return number >= 0 && number < kSource && chain_.code[number].code == code ? &chain_.code[number] : nullptr;
  }

  void take_column(FusedInstruction& i) {
    if (i.narrow || (i.code != FusedCode::add && i.code != FusedCode::mul)) return;
    const auto is_spread = [&](int number) {
      const FusedInstruction* spread = made_by(number, FusedCode::spread);
      return spread && stays(spread->a);
    };
    if (i.a == i.b || !(is_spread(i.a) || is_spread(i.b))) return;
    if (!is_spread(i.a)) std::swap(i.a, i.b);
    i.a = chain_.code[i.a].a;
    i.column = true;
  }
  // A product in float that nothing else reads, of what the chain does not write over before.
  bool is_product(int number) const {
    const FusedInstruction* made = made_by(number, FusedCode::mul);
    return made && uses_[number] == 1 && made->to < 0 && !(made->is_output && is_half(chain_.dtype)) &&
           stays(made->a) && stays(made->b);
  }
  void join(FusedInstruction& i, FusedCode code, int product, int other) {
    i.code = code;
    i.a = chain_.code[product].a;
    i.b = chain_.code[product].b;
    i.column = chain_.code[product].column;
    i.c = other;
  }
  void join_total(ChainPlace& total) {
    if (const FusedInstruction* copy = made_by(total.value, FusedCode::copy); copy && stays(copy->a)) {
      total.value = copy->a;
    } else if (!total.narrow && is_product(total.value) && chain_.code[total.value].column) {
      total.weight = chain_.code[total.value].a;
      total.value = chain_.code[total.value].b;
    }
  }

  // Removes instructions whose results nothing reads any more.
  void remove_unread() {
    std::vector<bool> read(chain_.code.size(), false);
    const auto mark = [&](int number) {
      if (number >= 0 && number < kSource) read[number] = true;
    };
    for (const ChainPlace& r : results_)
      for (const int operand : {r.value, r.weight}) mark(operand);
    for (size_t i = chain_.code.size(); i-- > 0;) {
      if (chain_.code[i].to >= 0) read[i] = true;
      if (read[i]) std::ranges::for_each(operands_of(chain_.code[i]), mark);
    }
    std::vector<int> number;
    std::vector<FusedInstruction> left;
    const auto renumber = [&](int& operand) {
      if (operand >= 0 && operand < kSource) operand = number[operand];
    };
    for (size_t i = 0; i < read.size(); ++i) {
      number.push_back(static_cast<int>(left.size()));
      if (!read[i]) continue;
      left.push_back(chain_.code[i]);
      for (int* operand : {&left.back().a, &left.back().b, &left.back().c}) renumber(*operand);
    }
    for (ChainPlace& r : results_)
      for (int* operand : {&r.value, &r.weight}) renumber(*operand);
    chain_.code = std::move(left);
  }

  StepChain& chain_;
  std::vector<ChainPlace>& results_;
  std::vector<int> uses_;
};

}  // namespace

// Whether a result's row is also shown under another name, so that the order of reading and writing would matter; of a
// block of timesteps, any row of the same tensor.
static bool is_shared(const StepIr& ir, const StepChain& chain, const std::vector<ChainPlace>& places,
                      const ChainPlace& result) {
  const StepSlot& mine = *ir.slots[result.slot];
  return std::ranges::any_of(places, [&](const ChainPlace& p) {
    const StepSlot& other = *ir.slots[p.slot];
    return p.slot != result.slot && mine.kind == Kind::link && other.kind == Kind::link &&
           other.whole.storage() == mine.whole.storage() &&
           (chain.phase != Phase::step || other.place(0) == mine.place(0) ||
            other.place(mine.kept) == mine.place(mine.kept));
  });
}

// Puts one operator in the place of the chain's last one; the others are removed by the caller. On a GPU one operator
// is a chain, too, as a kernel for all timesteps is made of chains (gpu/runtime/timesteps.h).
bool close_chain(StepIr& ir, StepChain& chain) {
  const size_t least = ir.spec.device.kind == DeviceKind::cpu || chain.phase != Phase::step ? 2 : 1;
  if (chain.ops.size() < least || !chain.padded.empty()) return false;
  if (chain.makes_vectors_alone()) return false;  // products alone have a faster kernel
  std::vector<ChainPlace> places = chain.sources, results;
  place_results(ir, chain, results);
  if (results.empty() || places.size() + results.size() > kMostFusedTensors) return false;
  if (chain.code.size() > kMostFusedValues) return false;
  const size_t sources = places.size();
  const auto shared = [&](const ChainPlace& r) {
    return is_shared(ir, chain, places, r) || is_shared(ir, chain, results, r);
  };
  if (std::ranges::any_of(results, shared)) return false;
  if (ir.spec.device.kind == DeviceKind::cpu) ShorterCode(chain, results).make();
  places.insert(places.end(), results.begin(), results.end());
  number_operands(chain.code, static_cast<int>(places.size()), places);
  StepOp& op = *ir.ops[chain.ops.back()];
  for (const size_t i : chain.ops) op.fused_types += (op.fused_types.empty() ? "" : "+") + ir.ops[i]->op.def.type();
  for (const size_t i : chain.ops) {
    op.parts.push_back({ir.ops[i]->meaning, ir.ops[i]->in_slots, ir.ops[i]->out_slots, ir.ops[i]->accumulate});
    // The last one stands for the chain from here on; the caller removes the others.
    op.part_ops.push_back(i == chain.ops.back() ? op.op : std::move(ir.ops[i]->op));
  }
  op.in_slots.clear();
  op.out_slots.clear();
  for (size_t p = 0; p < places.size(); ++p) (p < sources ? op.in_slots : op.out_slots).push_back(places[p].slot);
  op.fused = std::make_unique<Kernel>();
  std::shared_ptr<const FusedChain> on_device;
  if (ir.spec.device.kind != DeviceKind::cpu && !DryScope::now())
    on_device =
        backend(ir.spec.device.kind).fuse(ir.spec.device, chain.dtype, chain.code, static_cast<int>(places.size()));
  op.fused->run = [places, sources, code = chain.code, width = chain.width, dtype = chain.dtype, on_device](const void*,
                                                                                                            Call& c) {
    const RowsOfChain rows = rows_of_chain(places, sources, code, width, c.out(0).size());
    if (on_device) {
      run_on_device(*on_device, dtype, places, sources, rows, c);
    } else {
      const auto run = [&](auto zero) { run_chain<decltype(zero)>(places, sources, code, rows, c); };
      if (!with_half(dtype, run)) dtype == DType::float32 ? run(0.0F) : run(0.0);
    }
  };
  op.kernel = op.fused.get();
  if (ir.spec.device.kind == DeviceKind::cpu && elements_are_apart(ir, places, sources, chain.code, chain.width))
    op.fused_steps = [places, sources, code = chain.code, width = chain.width, dtype = chain.dtype](const auto& steps) {
      const RowsOfChain rows = rows_of_chain(places, sources, code, width, steps.elements);
      const auto run = [&](auto zero) { run_chain_steps<decltype(zero)>(places, sources, code, rows, steps); };
      if (!with_half(dtype, run)) dtype == DType::float32 ? run(0.0F) : run(0.0);
    };
  return true;
}

}  // namespace stepnet
