// Forward mode on the tape: how operators compute tangents (stepnet/engine.h says what these are).
//
// An operator whose inputs have tangents of several levels runs as if it did not see the last of these, which recurses
// into the others, and then so do the operators that compute the last one's tangents. So tangents have tangents, and
// the levels are not confused. Threads: as Variable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/autograd/variable_state.h"
#include "stepnet/eager_op.h"

namespace stepnet::autograd {

// What has tangents of one level. When it ends, these go, and with them what only they hold: a node may have saved a
// value whose tangent has a history that leads back to the node.
struct LevelState {
  uint64_t number = 0;  // rises
  std::mutex lock;
  bool ended = false;
  std::vector<std::weak_ptr<TangentSlot>> slots;
  size_t look_at = 64;  // when there are so many, those that are gone are taken out
};

// Levels of which operators do not see tangents now: from one to another, and those of scopes around.
struct HiddenLevels {
  uint64_t first, last;
  const HiddenLevels* outer;
};
uint64_t next_level();
uint64_t last_level();  // of those that have begun

inline bool is_hidden(uint64_t level) {
  for (const HiddenLevels* h = tape_state().hidden_levels; h; h = h->outer)
    if (h->first <= level && level <= h->last) return true;
  return false;
}
inline bool sees(const LevelState& level) { return !level.ended && !is_hidden(level.number); }

// For a scope: operators see tangents of earlier levels, and of those that begin inside.
class BelowLevel {
 public:
  explicit BelowLevel(uint64_t level) : hidden_{level, last_level(), tape_state().hidden_levels} {
    tape_state().hidden_levels = &hidden_;
  }
  ~BelowLevel() { tape_state().hidden_levels = hidden_.outer; }
  BelowLevel(const BelowLevel&) = delete;
  BelowLevel& operator=(const BelowLevel&) = delete;

 private:
  HiddenLevels hidden_;
};

// The last level, of those that operators see now, at which one of the variables has a tangent; null: none.
std::shared_ptr<LevelState> moving_level(std::span<const Variable> variables);
inline bool has_tangents(const Variable& v) { return v.defined() && v.state()->tangents; }  // of whatever level
// The same for a few variables, most of which have none.
inline bool moves(std::span<const Variable> variables) {
  for (const Variable& v : variables)
    if (has_tangents(v) && moving_level({&v, 1})) return true;
  return false;
}

inline bool moves(const VariableGradient& g) { return moves({g.is_sparse() ? &g.values : &g.dense, 1}); }

inline bool any_moves(const std::vector<VariableGradient>& gradients) {
  return std::ranges::any_of(gradients, [](const VariableGradient& g) { return moves(g); });
}

// Undefined if there is none of that level. Throws Error if it was written in place since it was set.
Variable tangent_of(const Variable& v, const LevelState& level);
// Gives a variable a tangent of that level in place of the one it has; an undefined one takes it away.
void set_tangent(const Variable& v, const std::shared_ptr<LevelState>& level, const Variable& tangent);

// As run_into (stepnet/record.h), of inputs that move.
void run_moving(const EagerOp& op, std::span<const Variable> inputs, std::span<Variable> outputs, Place place);

// Throws Error if the variable is to be written in place by `by` and is a view, or what it shows is one, of something
// that moves: the others would not learn of it. `moves`: what is written does.
void check_moving_write(const Variable& variable, const std::string& by, bool moves);
// Says that a variable was written in place that had tangents before or has some now, so that views of it are stale.
void mark_moved(const Variable& variable);

}  // namespace stepnet::autograd
