#include "recurrent/step/step_check.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/net/dataflow.h"
#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

uint64_t mix(uint64_t a, uint64_t b) {  // the finaliser of splitmix64
  uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x7f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The rows of a tensor, each written as a whole; of an arena, where values of several sizes take turns in its bytes.
class Memory {
 public:
  // What the row holds; before it is written, a number of its place. A row of which other values have taken a part is
  // no value any more.
  uint64_t read(uint64_t place, size_t at, size_t size) const {
    const auto it = rows_.find(at);
    if (it != rows_.end() && it->second.size == size) return it->second.value;
    return mix(mix(place, at), overlapping(at, size) != rows_.end() ? 2 : 1);
  }
  void write(size_t at, size_t size, uint64_t value) {
    if (is_arena)
      for (auto it = overlapping(at, size); it != rows_.end(); it = overlapping(at, size)) rows_.erase(it);
    rows_[at] = {size, value};
  }
  struct Row {
    size_t size;
    uint64_t value;
  };
  const std::map<size_t, Row>& rows() const { return rows_; }

  bool is_arena = false;

 private:
  std::map<size_t, Row>::const_iterator overlapping(size_t at, size_t size) const {
    auto it = rows_.lower_bound(at + size);
    if (it == rows_.begin()) return rows_.end();
    --it;
    return it->first + it->second.size > at ? it : rows_.end();
  }
  std::map<size_t, Row> rows_;
};

struct Timesteps {
  int64_t first = 0, count = 0;
};

class SymbolicRun {
 public:
  explicit SymbolicRun(const Schedule& s) : s_(s), memories_(s.slots.size()) {
    for (const Schedule::Op& op : s.ops) parts_[{op.phase, op.stage}].push_back(&op);
    for (const auto& [slot, stage] : s.changing) changing_[stage].push_back(slot);
    const std::vector<bool> crossing = find_crossing();
    std::map<const void*, int> by_storage;
    for (size_t i = 0; i < s.slots.size(); ++i) {
      const auto index = static_cast<int>(i);
      const void* storage = s.slots[i]->whole.storage().get();
      memory_of_.push_back(storage ? by_storage.emplace(storage, index).first->second : index);
      if (s.slots[i]->kind == Kind::block) memories_[memory_of_[i]].is_arena = true;
      apart_.push_back(!s.placed && s.slots[i]->kind == Kind::scratch && crossing[i]);
    }
  }

  void run(bool wave) {
    const int64_t blocks = blocks_of(s_.block);
    const int64_t behind = wave ? s_.stages - 1 : 0;
    for (int64_t turn = 0; turn < blocks + behind; ++turn) {
      wave ? run_wave(turn, blocks) : run_in_turn(block_at(s_.block, turn));
      if (!s_.after_last && turn >= behind) run_phase(Phase::after, block_at(s_.block, turn - behind));
    }
    for (int64_t i = 0; s_.after_last && i < blocks_of(s_.after_block); ++i)
      run_phase(Phase::after, block_at(s_.after_block, i));
  }

  SymbolicResults results() const {
    SymbolicResults results;
    for (size_t i = 0; i < s_.slots.size(); ++i) {
      if (s_.slots[i]->kind != Kind::link && s_.slots[i]->kind != Kind::slab) continue;
      for (const auto& [at, row] : memories_[memory_of_[i]].rows()) results[{memory_of_[i], at}] = row.value;
    }
    for (const auto& [gradient, value] : totals_) results[{-1 - static_cast<int>(gradient), 0}] = value;
    return results;
  }

 private:
  using Overlay = std::map<int, uint64_t>;  // slots of a chain that is at work

  // By slot: whether operators use it that run once for a block, or in several stages.
  std::vector<bool> find_crossing() const {
    std::vector<bool> crossing(s_.slots.size());
    std::vector<std::optional<std::pair<Phase, int>>> where(s_.slots.size());
    for (const Schedule::Op& op : s_.ops)
      for (const std::vector<int>* list : {&op.in, &op.out})
        for (const int s : *list) {
          if (s < 0) continue;
          const std::pair here{op.phase, op.stage};
          if (where[s].value_or(here) != here || op.phase != Phase::step) crossing[s] = true;
          where[s] = here;
        }
    return crossing;
  }

  const std::vector<const Schedule::Op*>& part(Phase phase, int stage) const {
    static const std::vector<const Schedule::Op*> none;
    const auto found = parts_.find({phase, stage});
    return found == parts_.end() ? none : found->second;
  }

  int64_t blocks_of(int64_t size) const { return (s_.steps + size - 1) / size; }
  Timesteps block_at(int64_t size, int64_t i) const {
    const int64_t first = (s_.descending ? blocks_of(size) - 1 - i : i) * size;
    return {first, std::min(size, s_.steps - first)};
  }
  int64_t timestep_at(const Timesteps& block, int64_t i) const {
    return s_.descending ? block.first + block.count - 1 - i : block.first + i;
  }

  void run_in_turn(const Timesteps& block) {
    for (int stage = 0; stage < s_.stages; ++stage) {
      run_block(Phase::before, stage, block);
      run_steps(stage, block);
    }
  }

  // Timesteps of the last stage first, so that none sees what an earlier one makes in the same turn.
  void run_wave(int64_t turn, int64_t blocks) {
    const auto works = [&](int stage) { return turn - stage >= 0 && turn - stage < blocks; };
    for (int stage = 0; stage < s_.stages; ++stage)
      if (works(stage)) run_block(Phase::before, stage, block_at(s_.block, turn - stage));
    for (int stage = s_.stages; stage-- > 0;)
      if (works(stage)) run_steps(stage, block_at(s_.block, turn - stage));
  }

  void run_phase(Phase phase, const Timesteps& block) {
    for (int stage = 0; stage < s_.stages; ++stage) run_block(phase, stage, block);
  }

  void run_steps(int stage, const Timesteps& block) {
    for (int64_t i = 0; i < block.count; ++i) {
      const int64_t t = timestep_at(block, i);
      for (const Schedule::Op* op : part(Phase::step, stage)) run_op(*op, t);
      for (const Schedule::Total& total : s_.totals)
        if (!total.by_kernel) totals_[total.gradient] += read(total.slot, t);
      if (const auto slots = changing_.find(stage); slots != changing_.end())
        for (const int slot : slots->second) add_from_outside(slot, t);
    }
  }

  // What an operator has read: its inputs' numbers, their sum, and the first.
  struct Inputs {
    uint64_t mixed = 0, sum = 0, first = 0;
    int count = 0;
    void add(uint64_t number) {
      mixed = mix(mixed, number);
      sum += number;
      if (count++ == 0) first = number;
    }
  };

  static constexpr uint64_t kShape = 13;
  static bool reads_shape(const Schedule::Op& op, size_t input) {
    return input < op.meaning.shape_only.size() && op.meaning.shape_only[input];
  }

  // All rows are read before any is written.
  void run_block(Phase phase, int stage, const Timesteps& block) {
    for (const Schedule::Op* const its : part(phase, stage)) {
      const Schedule::Op& op = *its;
      if (!op.parts.empty()) {
        std::vector<Overlay> chains;
        for (int64_t t = 0; t < block.count; ++t) chains.push_back(run_chain(op, block.first + t));
        for (int64_t t = 0; t < block.count; ++t)
          for (const int s : op.out) write(s, block.first + t, chains[static_cast<size_t>(t)].at(s));
        continue;
      }
      block_inputs_.assign(static_cast<size_t>(block.count), {});
      for (int64_t t = 0; t < block.count; ++t) {
        for (size_t i = 0; i < op.in.size(); ++i) {
          const bool one = i < op.one_timestep.size() && op.one_timestep[i];
          block_inputs_[t].add(reads_shape(op, i) ? kShape
                               : one              ? mix(number_of(op.in[i]), 3)
                                                  : read(op.in[i], block.first + t));
        }
      }
      for (int64_t t = 0; t < block.count; ++t) write_outputs(op, block_inputs_[t], block.first + t);
    }
  }

  void run_op(const Schedule::Op& op, int64_t t) {
    if (op.parts.empty()) {
      Inputs in;
      for (size_t i = 0; i < op.in.size(); ++i) in.add(reads_shape(op, i) ? kShape : read(op.in[i], t));
      return write_outputs(op, in, t);
    }
    const Overlay chain = run_chain(op, t);
    for (const int s : op.out) write(s, t, chain.at(s));
  }

  // What a chain's operators make of a timestep.
  Overlay run_chain(const Schedule::Op& op, int64_t t) {
    Overlay chain;
    for (const Schedule::Op& part : op.parts) {
      Inputs in;
      for (size_t i = 0; i < part.in.size(); ++i) {
        const auto made = chain.find(part.in[i]);
        in.add(reads_shape(part, i) ? kShape : made != chain.end() ? made->second : read(part.in[i], t));
      }
      for (size_t o = 0; o < part.out.size(); ++o)
        if (part.out[o] >= 0) chain[part.out[o]] = output_of(part, o, in, t);
    }
    return chain;
  }

  static uint64_t output_of(const Schedule::Op& op, size_t output, const Inputs& in, int64_t t) {
    if (op.meaning.copies) return in.first;
    if (op.meaning.sums) return in.sum;
    const uint64_t value = mix(mix(op.meaning.number, output + 1), in.mixed);
    return op.meaning.by_timestep ? mix(value, static_cast<uint64_t>(t)) : value;
  }

  void write_outputs(const Schedule::Op& op, const Inputs& in, int64_t t) {
    for (size_t o = 0; o < op.out.size(); ++o) {
      const int slot = op.out[o];
      if (slot < 0) continue;
      const uint64_t value = output_of(op, o, in, t);
      const bool adds = (op.accumulate >> o & 1) != 0;
      const auto total = std::ranges::find_if(
          s_.totals, [&](const Schedule::Total& each) { return each.slot == slot && each.by_kernel; });
      if (total != s_.totals.end()) {
        totals_[total->gradient] += value;
      } else {
        write(slot, t, adds ? read(slot, t) + value : value);
      }
    }
  }

  // Where the slot's timestep lies: the bytes of `rows` rows that follow one another.
  struct Place {
    size_t at = 0, row = 1, rows = 1;
  };
  Place place_of(int index, int64_t t) const {
    const StepSlot& slot = *s_.slots[index];
    if (slot.kind == Kind::block && !slot.whole.defined()) return {static_cast<size_t>(t % s_.ring)};
    if (slot.kind == Kind::scratch || slot.kind == Kind::external) return {apart_[index] ? static_cast<size_t>(t) : 0};
    if (slot.kind == Kind::timestep) return {0};
    const auto bytes = static_cast<size_t>(byte_size(slot.whole.dtype(), slot.row));
    // Of the rows of a gradient that are taken in turn, operators on blocks get all.
    if (slot.cycle > 0 && slot.changes) return {static_cast<size_t>(t + slot.first) * bytes, bytes};
    const size_t row = slot.kind == Kind::link ? slot.stride : bytes;
    return {slot.place(slot.kind == Kind::block ? t % s_.ring : t), row,
            row > 0 ? std::max<size_t>(bytes / row, 1) : 1};
  }

  uint64_t number_of(int slot) const { return mix(0x51, static_cast<uint64_t>(memory_of_[slot])); }

  uint64_t read(int slot, int64_t t) const {
    if (slot < 0) return 5;
    if (s_.slots[slot]->kind == Kind::timestep) return mix(7, static_cast<uint64_t>(t));
    if (s_.slots[slot]->shape_only) return number_of(slot);
    const Place place = place_of(slot, t);
    const Memory& memory = memories_[memory_of_[slot]];
    uint64_t value = memory.read(number_of(slot), place.at, place.row);
    for (size_t i = 1; i < place.rows; ++i)
      value = mix(value, memory.read(number_of(slot), place.at + i * place.row, place.row));
    return value;
  }

  void write(int slot, int64_t t, uint64_t value) {
    const Place place = place_of(slot, t);
    for (size_t i = 0; i < place.rows; ++i)
      memories_[memory_of_[slot]].write(place.at + i * place.row, place.row, i == 0 ? value : mix(value, i));
  }

  // What arrives from outside for the row that the timestep has written: t, or t + 1 if time runs forward.
  void add_from_outside(int slot, int64_t t) {
    const StepSlot& shown = *s_.slots[slot];
    const int64_t first = shown.first;
    const int64_t row = t + (s_.descending ? 0 : 1);
    write(slot, row - first, read(slot, row - first) + mix(11, static_cast<uint64_t>(row)));
  }

  const Schedule& s_;
  std::map<std::pair<Phase, int>, std::vector<const Schedule::Op*>> parts_;  // operators, by phase and stage
  std::map<int, std::vector<int>> changing_;                                 // slots, by the stage that waits
  std::vector<int> memory_of_;  // by slot: the first slot that shows the same tensor
  std::vector<bool> apart_;     // by slot: a scratch that is to get a row for each timestep
  std::vector<Memory> memories_;
  std::map<size_t, uint64_t> totals_;
  std::vector<Inputs> block_inputs_;
};

}  // namespace

OpMeaning meaning_of(const BoundOp& op) {
  OpMeaning meaning;
  std::string text = op.def.type();
  for (const Argument& arg : op.def.arg()) text += arg.SerializeAsString();
  if (op.spec->random) text += draw_name(op.def);
  meaning.number = std::hash<std::string>()(text);
  meaning.sums = op.spec->sums_inputs;
  meaning.copies = op.spec->role == Role::copy || op.spec->role == Role::alias;
  meaning.by_timestep = op.spec->random || op.spec->blob_kernel;
  meaning.shape_only = element_reads(*op.spec, op.def);
  meaning.shape_only.flip();
  return meaning;
}

SymbolicResults run_on_symbols(const Schedule& schedule, bool wave) {
  SymbolicRun run(schedule);
  run.run(wave);
  return run.results();
}

void check_results(const Schedule& schedule, const SymbolicResults& expected, const SymbolicResults& found,
                   const std::string& pass) {
  for (const auto& [place, value] : expected) {
    const auto it = found.find(place);
    if (it != found.end() && it->second == value) continue;
    const auto& [slot, at] = place;
    const std::string what = slot < 0 ? fmt::format("the sum over time number {}", -1 - slot)
                                      : fmt::format("\"{}\" at byte {}", schedule.slots[slot]->name, at);
    throw Error(fmt::format("after the pass {}, {} is {}, a mistake of this program", pass, what,
                            it == found.end() ? "not written" : "made from other values"),
                fmt::format("name \"{}\" in \"disabled_passes\"", pass));
  }
}

void check_scratch(const Schedule& schedule, int stage, const std::map<int, ScratchPlace>& places) {
  Memory arena;  // a row's value is its slot's
  arena.is_arena = true;
  const auto each = [&](const std::vector<int>& slots, auto fn) {
    for (const int slot : slots)
      if (const auto place = places.find(slot); place != places.end() && place->second.size > 0)
        fn(slot, place->second);
  };
  const auto check = [&](int slot, const ScratchPlace& place) {
    const auto value = static_cast<uint64_t>(slot);
    if (arena.read(~value, place.at, place.size) == value) return;
    throw Error(fmt::format("after the pass layout, \"{}\" does not have its bytes from {} to {} any more, or not yet, "
                            "where it is read: a mistake of this program",
                            schedule.slots[slot]->name, place.at, place.at + place.size),
                "name \"layout\" in \"disabled_passes\"");
  };
  std::vector<int> written;
  for (const Schedule::Op& op : schedule.ops) {
    if (op.phase != Phase::step || op.stage != stage) continue;
    each(op.in, check);
    for (size_t o = 0; o < op.out.size(); ++o)
      if ((op.accumulate >> o & 1) != 0) each({op.out[o]}, check);
    each(op.out, [&](int slot, const ScratchPlace& p) { arena.write(p.at, p.size, static_cast<uint64_t>(slot)); });
    each(op.out, check);
    each(op.in, check);
    written.insert(written.end(), op.out.begin(), op.out.end());
  }
  for (const Schedule::Total& total : schedule.totals)
    if (!total.by_kernel && std::ranges::find(written, total.slot) != written.end()) each({total.slot}, check);
}

// Compares what the program makes now with what it made at the first call. Where rows have no bytes they have no places
// of their own. What has many timesteps is looked at once in the end, and what has very many not at all.
void check_pass(StepIr& ir, const std::string& pass) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // which other builds do faster
#endif
  constexpr int64_t kMany = 1000, kVeryMany = 20000;
  const int64_t runs = ir.spec.steps * static_cast<int64_t>(ir.ops.size());
  const bool is_end = pass.empty() || pass == "layout";
  const auto is_empty = [](const auto& slot) { return slot->typed && slot->tensor.size() == 0; };
  if (runs > kVeryMany || (runs > kMany && !is_end) || std::ranges::any_of(ir.slots, is_empty)) return;
  Schedule now = ir.schedule();
  now.placed = ir.placed;
  if (pass.empty()) {
    ir.expected = run_on_symbols(now, false);
    return;
  }
  check_results(now, ir.expected, run_on_symbols(now, false), pass);
  const bool has_room = ir.ring >= ir.spec.block * ir.stages;
  if (ir.stages > 1 && has_room && ir.runs_pass("wavefront"))
    check_results(now, ir.expected, run_on_symbols(now, true), "wavefront");
}

}  // namespace stepnet
