#include "core/autograd/tape_tangents.h"

#include <algorithm>
#include <atomic>

#include "core/autograd/capture.h"
#include "core/autograd/op_node.h"
#include "core/autograd/run_steps.h"
#include "core/tensor/small_vector.h"
#include "stepnet/record.h"

namespace stepnet::autograd {
namespace {

using SlotKind = GradientProgram::SlotKind;
constexpr size_t kFew = 4;
std::atomic<uint64_t> g_levels{0};

std::shared_ptr<TangentSlot> make_slot(LevelState& level, const Variable& tangent) {
  auto slot = std::make_shared<TangentSlot>(TangentSlot{tangent, tangent.version()});
  const std::lock_guard lock(level.lock);
  require(!level.ended, "a tangent is set at a level that has ended");
  if (level.slots.size() >= level.look_at) {
    std::erase_if(level.slots, [](const std::weak_ptr<TangentSlot>& s) { return s.expired(); });
    level.look_at = std::max<size_t>(64, 2 * level.slots.size());
  }
  level.slots.push_back(slot);
  return slot;
}

// What an input was before an operator overwrote it: its values, history and tangents.
Variable copy_before(const Variable& v) {
  const Edge edge = v.gradient_edge();
  Tensor value = clone_captured(v.value());
  Variable copy = edge.valid() ? variable_of(std::move(value), edge.node, edge.index) : Variable(std::move(value));
  copy.state()->tangents = v.state()->tangents;
  count(TapeEvent::input_cloned);
  return copy;
}

// One operator whose inputs have tangents of a level.
struct Moving {
  const EagerOp& op;
  const std::shared_ptr<LevelState>& level;
  InlineVector<Variable, kFew> inputs, tangents;                     // as they are before the operator runs
  InlineVector<std::shared_ptr<const Tangents>, kFew> all_tangents;  // of the inputs, before
  const EagerGradient* program = nullptr;                            // null: the operator stops gradients

  Moving(const EagerOp& op, const std::shared_ptr<LevelState>& level, std::span<const Variable> given)
      : op(op), level(level), inputs(given.size()), tangents(given.size()), all_tangents(given.size()) {
    Flags moved(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      inputs[i] = given[i];
      if (given[i].defined()) all_tangents[i] = given[i].state()->tangents;
      tangents[i] = tangent_of(given[i], *level);
      if (tangents[i].defined()) moved.set(i);
    }
    if (op.spec().gradient_rule != GradientRule::stop) program = &op.tangents(moved);
  }

  // The tangents' formulas, and nodes that save what they read, see what was there before.
  void keep_overwritten() {
    for (int o = 0; o < op.outputs(); ++o) {
      const int target = op.in_place(o);
      if (target < 0) continue;
      check_moving_write(inputs[target], op.type(), true);
      const Tensor written = inputs[target].value();
      const auto is_read = [&](size_t i) {
        return program && inputs[i].defined() && inputs[i].value().shares_storage(written) &&
               std::ranges::count(program->saved_inputs, static_cast<int>(i)) > 0;
      };
      const bool is_target_read = is_read(static_cast<size_t>(target));
      for (size_t i = 0; i < inputs.size(); ++i)
        if (static_cast<int>(i) != target && is_read(i)) inputs[i] = copy_before(inputs[i]);
      if (is_target_read) inputs[target] = copy_before(inputs[target]);
    }
  }

  void run(std::span<Variable> outputs, Place place) {
    InlineVector<Variable, 2 * kFew> slots(program->program.slots.size());
    const auto n = static_cast<int>(inputs.size());
    for (size_t s = 0; s < slots.size(); ++s) {
      const GradientProgram::Slot& slot = program->program.slots[s];
      if (slot.kind == SlotKind::temporary) continue;
      const bool is_input = slot.kind == SlotKind::input;
      slots[s] = !is_input ? outputs[slot.index] : slot.index < n ? inputs[slot.index] : tangents[slot.index - n];
    }
    run_steps(*program, slots, place);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!outputs[o].defined() || !op.wants_output(static_cast<int>(o))) continue;
      const Gradient& result = program->program.results[o];
      set_tangent(outputs[o], level,
                  result.dense.defined() ? shaped(slots[result.dense.slot], outputs[o]) : Variable());
    }
  }

  // Formulas of operators that broadcast may leave a tangent in the shape of an operand.
  static Variable shaped(const Variable& tangent, const Variable& like) {
    if (tangent.shape() == like.shape() && tangent.dtype() == like.dtype()) return tangent;
    fail("a tangent of {} is {}", like.value(), tangent.value());
  }
};

}  // namespace

uint64_t next_level() { return ++g_levels; }
uint64_t last_level() { return g_levels; }

std::shared_ptr<LevelState> moving_level(std::span<const Variable> variables) {
  std::shared_ptr<LevelState> last;
  for (const Variable& v : variables) {
    if (!has_tangents(v)) continue;
    for (const LevelTangent& t : *v.state()->tangents)
      if (!is_hidden(t.level->number) && t.slot->tangent.defined() && (!last || last->number < t.level->number))
        last = t.level;
  }
  return last;
}

Variable tangent_of(const Variable& v, const LevelState& level) {
  if (!has_tangents(v)) return {};
  for (const LevelTangent& t : *v.state()->tangents) {
    if (t.level.get() != &level) continue;
    const TangentSlot& slot = *t.slot;
    if (slot.tangent.defined() && slot.tangent.version() != slot.version)
      throw Error(fmt::format("the tangent of {} was set at version {} and is at version {} now: it was written in "
                              "place since",
                              v.value(), slot.version, slot.tangent.version()),
                  "write to another variable, or copy it before");
    return slot.tangent;
  }
  return {};
}

void set_tangent(const Variable& v, const std::shared_ptr<LevelState>& level, const Variable& tangent) {
  auto all = std::make_shared<Tangents>();
  if (has_tangents(v))
    for (const LevelTangent& t : *v.state()->tangents)
      if (t.level != level && t.slot->tangent.defined()) all->push_back(t);
  if (tangent.defined()) all->push_back({level, make_slot(*level, tangent)});
  std::ranges::sort(*all, {}, [](const LevelTangent& t) { return t.level->number; });
  v.state()->tangents = all->empty() ? nullptr : std::move(all);
}

void run_moving(const EagerOp& op, std::span<const Variable> inputs, std::span<Variable> outputs, Place place) {
  const std::shared_ptr<LevelState> level = moving_level(inputs);
  Moving moving(op, level, inputs);
  const BelowLevel below(level->number);
  if (op.is_in_place()) moving.keep_overwritten();
  run_into(op, inputs, outputs, place);
  if (moving.program) moving.run(outputs, place);
  for (int o = 0; o < op.outputs(); ++o) {
    if (op.in_place(o) < 0) continue;
    if (!moving.program) set_tangent(outputs[o], level, {});
    mark_moved(outputs[o]);
  }
  if (!tape_state().recording) return;  // what was written in place may still have the node of an earlier call
  for (const Variable& out : outputs)
    if (out.defined() && out.grad_fn())
      if (auto* node = dynamic_cast<OpNode*>(out.grad_fn().get()); node && &node->op() == &op) {
        node->save_tangents({moving.all_tangents.begin(), moving.all_tangents.size()}, outputs);
        break;
      }
}

void check_moving_write(const Variable& variable, const std::string& by, bool moves) {
  const VariableState& s = *variable.state();
  if (!s.is_view || !s.family) return;
  const std::shared_ptr<VariableState> base = s.family->base.lock();
  if (!moves && !s.tangents && !(base && base->tangents)) return;
  throw Error(
      fmt::format("{} would write in place to a view, {}, and what it is a view of has a tangent, or would have "
                  "to get one",
                  by, s.value),
      "write to the base, or to a copy");
}

void mark_moved(const Variable& variable) {
  VariableState& s = *variable.state();
  if (s.family) s.family->tangent_version = s.value.version();
}

}  // namespace stepnet::autograd
