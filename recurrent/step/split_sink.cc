// A pass over a StepIr: operators are put into stages, and a block of timesteps runs stage by stage.
//
// Operators that wait for each other over the timesteps are a cell. What a cell hands on, to the next cell of a stack
// or to operators that feed no state, is there for a whole block before those run, so a product with it is one product
// for the block (splitting a stack into loops; sinking). Two stages may also work on two blocks at once (a wavefront,
// see step_schedule.cc).
#include <algorithm>

#include "recurrent/step/components.h"
#include "recurrent/step/ir.h"
#include "recurrent/step/passes.h"

namespace stepnet {

using Kind = StepSlot::Kind;
using Phase = Schedule::Phase;

namespace {

// Which operators have to run before which, in the same timestep or in a later one.
class Orders {
 public:
  explicit Orders(size_t ops) : next(ops) {}
  void add(size_t first, size_t then) { next[first].push_back(static_cast<int>(then)); }
  void bind(size_t a, size_t b) {
    add(a, b);
    add(b, a);
  }
  void bind(const std::vector<size_t>& ops) {
    for (size_t i = 1; i < ops.size(); ++i) bind(ops[0], ops[i]);
  }
  // The same from one timestep to the next.
  void add_over_time(size_t first, size_t then) {
    add(first, then);
    if (first != then) over_time.emplace_back(first, then);
  }
  void bind_over_time(size_t a, size_t b) {
    add_over_time(a, b);
    add_over_time(b, a);
  }

  std::vector<std::vector<int>> next;
  std::vector<std::pair<size_t, size_t>> over_time;
};

// Within a timestep, who reads the slot waits for who writes it. A value whose shape is not known before the run cannot
// get a row for each timestep, so that all who use it stay together.
void order_slot(const StepIr& ir, Orders& orders, int slot) {
  const std::vector<size_t>& by = ir.writers(slot);
  if (by.empty()) return;
  const std::vector<size_t>& all = ir.users(slot);
  if (by.size() > 1 || ir.slots[slot]->reshaped || !ir.slots[slot]->typed || all.front() < by[0])
    return orders.bind(all);
  for (const size_t i : all) orders.add(by[0], i);
}

// Whether nobody writes what the slot shows, which those that are written have shown at earlier timesteps.
bool is_earlier_row(const StepIr& ir, int slot) {
  const SlotUses::Links& links = ir.links_like(slot);
  const int64_t row = ir.first_row(slot);
  return ir.writers(slot).empty() && row >= 0 && links.rows_known &&
         (ir.spec.descending ? row > links.last : row < links.first);
}

// Between timesteps, who reads a state waits for who writes it.
void order_rows(const StepIr& ir, Orders& orders, const std::vector<int>& same_tensor) {
  const auto moves_on = [&](int s) {
    return ir.slots[s]->changes || (ir.slots[s]->cycle > 0 && ir.slots[s]->kept == 0);
  };
  if (std::ranges::any_of(same_tensor, moves_on)) {
    std::vector<size_t> all;
    for (const int s : same_tensor)
      for (const size_t i : ir.users(s)) all.push_back(i);
    for (const size_t i : all) orders.bind_over_time(all[0], i);
    return;
  }
  // All that write are bound to each other, and stand for each other: of two, one is another operator than any that
  // reads. Who uses the only slot that is written has its order within the timestep.
  std::vector<size_t> writers;
  for (const int s : same_tensor)
    for (const size_t w : ir.writers(s))
      if (writers.size() < 2 && std::ranges::count(writers, w) == 0) writers.push_back(w);
  if (writers.empty()) return;
  const bool one_is_written = ir.links_like(same_tensor[0]).written == 1;
  for (const int s : same_tensor) {
    if (one_is_written && !ir.writers(s).empty()) continue;
    // A ring has rows for what the blocks of all stages make. The row before a block is none of them: the first stage
    // has written over it when the last one begins.
    const bool earlier = is_earlier_row(ir, s) && ir.slots[s]->cycle == 0;
    for (const size_t w : writers)
      for (const size_t i : ir.users(s)) earlier ? orders.add_over_time(w, i) : orders.bind_over_time(w, i);
  }
}

Orders find_orders(const StepIr& ir) {
  Orders orders(ir.ops.size());
  std::map<const void*, std::vector<int>> links;
  for (size_t s = 0; s < ir.slots.size(); ++s) {
    const StepSlot& slot = *ir.slots[s];
    if (slot.kind == Kind::external || slot.kind == Kind::timestep) continue;
    order_slot(ir, orders, static_cast<int>(s));
    if (slot.kind == Kind::link) links[slot.whole.storage().get()].push_back(static_cast<int>(s));
  }
  for (const auto& [storage, slots] : links) order_rows(ir, orders, slots);
  return orders;
}

}  // namespace

// Whether the operator could run for a block at once if all that it reads were there.
bool may_hoist(const StepIr& ir, const StepOp& op) {
  if (!ir.can_stack(op) || op.accumulate != 0) return false;
  return std::ranges::all_of(op.out_slots, [&](int s) {
    if (s < 0) return true;
    const Kind kind = ir.slots[s]->kind;
    return (kind == Kind::scratch || kind == Kind::slab) && ir.writers(s).size() == 1 && !ir.is_total(s);
  });
}

namespace {

// A component of operators, in the order in which they depend on each other.
struct Component {
  std::vector<size_t> ops;
  bool is_cell = false;      // its timesteps wait for each other
  bool hoists = false;       // one operator that may run for a block at once
  bool after_cell = false;   // is a cell, or waits for one
  bool before_cell = false;  // a later one is a cell and waits for it
  std::vector<int> earlier;
  int stage = 0;
};

using Pairs = std::vector<std::pair<size_t, size_t>>;

std::vector<Component> components_of(const std::vector<std::vector<int>>& next, const Pairs& over_time) {
  const std::vector<int> number = connected_components(next);
  std::vector<Component> result(number.empty() ? 0 : *std::ranges::max_element(number) + 1);
  for (size_t i = 0; i < next.size(); ++i) result[number[i]].ops.push_back(i);
  for (size_t i = 0; i < next.size(); ++i) {
    for (const int j : next[i])
      if (number[i] != number[j]) result[number[j]].earlier.push_back(number[i]);
  }
  for (const auto& [first, then] : over_time)
    if (number[first] == number[then]) result[number[first]].is_cell = true;
  return result;
}

void find_cells_around(std::vector<Component>& components) {
  for (Component& c : components) {
    c.after_cell = c.is_cell;
    for (const int e : c.earlier) c.after_cell = c.after_cell || components[e].after_cell;
  }
  for (auto c = components.rbegin(); c != components.rend(); ++c)
    for (const int e : c->earlier)
      components[e].before_cell = components[e].before_cell || c->is_cell || c->before_cell;
}

// Whether the operator alone is a cell: it reads a state and writes it.
bool carries(const StepIr& ir, const StepOp& op) {
  for (const int in : op.in_slots) {
    if (in < 0 || ir.slots[in]->kind != Kind::link) continue;
    for (const int out : op.out_slots) {
      if (out < 0 || ir.slots[out]->kind != Kind::link) continue;
      if (ir.slots[in]->whole.storage() == ir.slots[out]->whole.storage()) return true;
    }
  }
  return false;
}

// A component goes to the stage behind a cell's, and behind that of operators that wait for one in every timestep.
int number_stages(StepIr& ir, const Orders& orders) {
  std::vector<Component> components = components_of(orders.next, orders.over_time);
  for (Component& c : components) {
    if (c.ops.size() == 1) c.is_cell = carries(ir, *ir.ops[c.ops[0]]);
    // What reads a sample's matrix gains nothing from waiting for a block, as no sample has another one's.
    c.hoists = !c.is_cell && c.ops.size() == 1 && may_hoist(ir, *ir.ops[c.ops[0]]) &&
               !(reads_matrices(ir, *ir.ops[c.ops[0]]) && !ir.spec.backward);
  }
  find_cells_around(components);
  int last = 0;
  for (Component& c : components) {
    const bool to_cell = c.is_cell || (c.hoists && c.before_cell);
    const bool moves = to_cell ? ir.runs_pass("split") : c.hoists && ir.runs_pass("sink") && !ir.spec.backward;
    for (const int e : c.earlier) {
      const bool waits = components[e].after_cell && !components[e].hoists;
      c.stage = std::max(c.stage, components[e].stage + (moves && waits ? 1 : 0));
    }
    // Where it cannot run for a block after all, it is an operator of its timesteps.
    c.hoists = c.hoists && (moves || !c.after_cell);
    for (const size_t i : c.ops) ir.ops[i]->stage = c.stage;
    last = std::max(last, c.stage);
  }
  return last + 1;
}

}  // namespace

void plan_stages(StepIr& ir) {
  // What is added up after a timestep must be made in it.
  if (!std::ranges::all_of(ir.totals, [&](const StepTotal& t) { return ir.is_accumulator(t.slot); })) return;
  {
    const KnownUses known(ir);
    ir.stages = number_stages(ir, find_orders(ir));
  }
  std::stable_sort(ir.ops.begin(), ir.ops.end(), [](const auto& a, const auto& b) { return a->stage < b->stage; });
}

// What one stage hands to another in a scratch buffer gets a row for each timestep.
void widen_between_stages(StepIr& ir) {
  if (ir.stages < 2) return;
  const KnownUses known(ir);
  for (size_t s = 0; s < ir.slots.size(); ++s) {
    const std::vector<size_t>& all = ir.users(static_cast<int>(s));
    if (all.empty() || ir.slots[s]->kind != Kind::scratch || ir.is_total(static_cast<int>(s))) continue;
    if (ir.ops[all.front()]->stage != ir.ops[all.back()]->stage) widen(ir, static_cast<int>(s));
  }
}

}  // namespace stepnet
