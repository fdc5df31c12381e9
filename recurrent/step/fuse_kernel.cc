// The end of a chain: every result gets a place, and one operator runs all of it.
#include <algorithm>
#include <functional>

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
                          const std::vector<FusedInstruction>& code, int64_t width, const Call& call) {
  const int64_t rows = call.out(0).size() / std::max<int64_t>(places[sources].row_size, 1);
  const bool dense = std::ranges::none_of(code, sums_rows) && std::ranges::all_of(places, [=](const ChainPlace& p) {
                       return p.row_size == width && !p.one_row && !p.one_column && p.each == 1 && p.cycle == 0;
                     });
  return dense ? RowsOfChain{1, width * rows} : RowsOfChain{rows, width};
}

void run_on_device(const FusedChain& chain, DType dtype, const std::vector<ChainPlace>& places, size_t sources,
                   const RowsOfChain& rows, Call& call) {
  std::vector<FusedOperand<void>> tensors(places.size());
  for (size_t p = 0; p < places.size(); ++p) {
    const auto i = static_cast<int>(p);
    const std::byte* first =
        p < sources ? call.in(i).raw() : std::as_const(call.out(i - static_cast<int>(sources))).raw();
    tensors[p] = {const_cast<std::byte*>(first) + static_cast<size_t>(places[p].column) * dtype_size(dtype),
                  places[p].stride(), places[p].step()};
  }
  chain.run(tensors, rows.width, rows.count);
}

template <class T>
void run_chain(const std::vector<ChainPlace>& places, size_t sources, const std::vector<FusedInstruction>& code,
               const RowsOfChain& rows, Call& call) {
  FusedOperand<T> tensors[kMostFusedTensors];
  for (size_t p = 0; p < places.size(); ++p) {
    const auto i = static_cast<int>(p);
    T* first = p < sources ? const_cast<T*>(call.in_span<T>(i).data())  // is only read
                           : call.out_span<T>(i - static_cast<int>(sources)).data();
    tensors[p] = {first + places[p].column, places[p].stride(), places[p].step(),
                  places[p].each,           places[p].cycle,    places[p].sums};
  }
  const FusedLoop<T> loop{code.data(), static_cast<int>(code.size()), tensors,   static_cast<int>(places.size()),
                          rows.width,  static_cast<int>(sources),     rows.count};
  const bool sums = std::ranges::any_of(places, &ChainPlace::sums);
  const int64_t together = sums && fused_rows_at_once(rows.width) == 1 ? fused_pieces_of_row(rows.width) : 1;
  const auto range = [&](int64_t begin, int64_t end) { fused_kernels().run(loop, begin * together, end * together); };
  parallel_for(fused_pieces(rows.count, rows.width) / together,
               static_cast<double>(together) * fused_nanoseconds(code) * kFusedPiece, std::ref(range));
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
    }
  };
  for (FusedInstruction& i : chain.code) i.to = kNowhere;
  for (const auto& [slot, value] : chain.values)
    if (is_seen(ir, chain, slot)) put(value, {slot, 0, chain.width});
  for (const auto& [slot, value] : chain.columns)
    if (is_seen(ir, chain, slot)) put(value, {slot, 0, 1, false, true});
  for (const auto& [slot, value] : chain.sums)
    if (is_seen(ir, chain, slot)) put(value, {slot, 0, 1, false, true, 1, 0, true});
  for (const auto& [slot, parts] : chain.filled)
    for (const ChainPart& p : parts) put(p.value, {slot, p.column, last_dim(ir.slots[slot]->tensor)});
}

namespace {

// From numbers of instructions and sources to indices of operands: tensors first, then values in between.
void number_operands(std::vector<FusedInstruction>& code, int tensors) {
  std::vector<size_t> last_use(code.size(), 0);
  for (FusedInstruction& i : code)
    if (!reads_c(i.code)) i.c = i.a;
  for (size_t i = 0; i < code.size(); ++i)
    for (const int operand : {code[i].a, code[i].b, code[i].c})
      if (operand < kSource) last_use[operand] = i;
  std::vector<int> index(code.size()), free;
  int used = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    FusedInstruction& made = code[i];
    std::vector<int> ended;
    for (int* operand : {&made.a, &made.b, &made.c}) {
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

// Joins products with the sum or the sums of a row that alone reads them, so that they are not stored in between.
class JoinedProducts {
 public:
  JoinedProducts(StepChain& chain, const std::vector<ChainPlace>& results)
      : chain_(chain), results_(results), uses_(chain.code.size(), 0), gone_(chain.code.size(), false) {
    for (const FusedInstruction& i : chain.code) {
      if (i.a < kSource) ++uses_[i.a];
      if (i.b < kSource && fused_code(i.code).reads_b) ++uses_[i.b];
    }
  }

  void join() {
    for (FusedInstruction& i : chain_.code) {
      if (i.code == FusedCode::add && is_product(i.a)) {
        take(i, FusedCode::product_sum, i.a, i.b);
      } else if (i.code == FusedCode::add && is_product(i.b)) {
        take(i, FusedCode::product_sum, i.b, i.a);
      } else if (i.code == FusedCode::sub && is_product(i.b)) {
        take(i, FusedCode::less_product, i.b, i.a);
      } else if (i.code == FusedCode::row_sum && is_product(i.a)) {
        take(i, FusedCode::row_product, i.a, i.a);
      }
    }
    remove();
  }

 private:
  // A product in float that nothing else reads, of what the chain does not write over before.
  bool is_product(int number) const {
    if (number >= kSource || uses_[number] != 1) return false;
    const FusedInstruction& made = chain_.code[number];
    const auto stays = [&](int operand) {
      return operand < kSource || std::ranges::none_of(results_, [&](const ChainPlace& r) {
               return r.slot == chain_.sources[operand - kSource].slot;
             });
    };
    return made.code == FusedCode::mul && made.to < 0 && !(made.is_output && is_half(chain_.dtype)) && stays(made.a) &&
           stays(made.b);
  }
  void take(FusedInstruction& i, FusedCode code, int product, int other) {
    i.code = code;
    i.a = chain_.code[product].a;
    i.b = chain_.code[product].b;
    i.c = other;
    gone_[product] = true;
  }
  void remove() {
    std::vector<int> number;
    std::vector<FusedInstruction> left;
    for (size_t i = 0; i < gone_.size(); ++i) {
      number.push_back(static_cast<int>(left.size()));
      if (gone_[i]) continue;
      left.push_back(chain_.code[i]);
      for (int* operand : {&left.back().a, &left.back().b, &left.back().c})
        if (*operand < kSource) *operand = number[*operand];
    }
    chain_.code = std::move(left);
  }

  StepChain& chain_;
  const std::vector<ChainPlace>& results_;
  std::vector<int> uses_;
  std::vector<bool> gone_;
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
  if (chain.values.empty() && !chain.columns.empty()) return false;  // products alone have a faster kernel
  std::vector<ChainPlace> places = chain.sources, results;
  place_results(ir, chain, results);
  if (results.empty() || places.size() + results.size() > kMostFusedTensors) return false;
  const size_t sources = places.size();
  const auto shared = [&](const ChainPlace& r) {
    return is_shared(ir, chain, places, r) || is_shared(ir, chain, results, r);
  };
  if (std::ranges::any_of(results, shared)) return false;
  if (ir.spec.device.kind == DeviceKind::cpu) JoinedProducts(chain, results).join();
  places.insert(places.end(), results.begin(), results.end());
  number_operands(chain.code, static_cast<int>(places.size()));
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
    const RowsOfChain rows = rows_of_chain(places, sources, code, width, c);
    if (on_device) {
      run_on_device(*on_device, dtype, places, sources, rows, c);
    } else {
      const auto run = [&](auto zero) { run_chain<decltype(zero)>(places, sources, code, rows, c); };
      if (!with_half(dtype, run)) dtype == DType::float32 ? run(0.0F) : run(0.0);
    }
  };
  op.kernel = op.fused.get();
  return true;
}

}  // namespace stepnet
