#include "recurrent/network/segment_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "stepnet/error.h"

namespace stepnet {
namespace {

using Kind = SegmentAction::Kind;

// Segments times slots of a table, which bounds its memory and the time that it takes.
constexpr int64_t kMostCells = int64_t{1} << 20;
constexpr int64_t kMostSlots = 4096;
// So many segments are cut at the best of all places. More of them are cut near the place where one segment fewer is.
constexpr int64_t kCutAnywhere = 24;
constexpr int64_t kNear = 4;

// The least numbers of runs, by segments and by slots of room, and how they are reached.
class Table {
 public:
  Table(const SegmentCosts& costs, int64_t room) : segments_(costs.segments) {
    const int64_t useful = std::min(room, full_room(costs)), most = std::min(kMostSlots, kMostCells / segments_ + 1);
    slot_ = std::max<int64_t>(std::gcd(costs.checkpoint, costs.kept), useful / most + 1);
    checkpoint_ = slots_for(costs.checkpoint);
    kept_ = slots_for(costs.kept);
    slots_ = useful / slot_;
    cells_.resize(static_cast<size_t>((segments_ + 1) * (slots_ + 1)));
    near_.resize(static_cast<size_t>(slots_ + 1));
    for (int64_t t = 1; t <= segments_; ++t)
      for (int64_t m = 0; m <= slots_; ++m) fill(t, m);
  }

  int64_t slots() const { return slots_; }
  int64_t kept() const { return kept_; }
  int64_t checkpoint() const { return checkpoint_; }
  int64_t runs(int64_t t, int64_t m) const { return at(t, m).runs; }
  // The number of segments in front of the cut.
  int64_t ahead(int64_t t, int64_t m) const { return at(t, m).ahead; }
  // Whether the segment behind the cut is held. Else a checkpoint is, but for the last segment, in front of which no
  // states are held.
  bool holds(int64_t t, int64_t m) const { return at(t, m).holds; }

 private:
  struct Cell {
    int32_t runs = 0;
    int32_t ahead : 31 = 0;
    bool holds : 1 = false;
  };
  // Where the segments were cut best for one segment fewer.
  struct Near {
    int64_t checkpoint = 1, held = 0;
  };
  struct Cut {
    int64_t runs, ahead;
  };
  int64_t slots_for(int64_t bytes) const { return (bytes + slot_ - 1) / slot_; }
  const Cell& at(int64_t t, int64_t m) const { return cells_[static_cast<size_t>(t * (slots_ + 1) + m)]; }

  void fill(int64_t t, int64_t m) {
    Cell best{1, 0, true};
    if (t > 1) {
      Near& near = near_[static_cast<size_t>(m)];
      const auto offer = [&](const Cut& cut, bool holds) {
        if (cut.runs < best.runs) best = {static_cast<int32_t>(cut.runs), static_cast<int32_t>(cut.ahead), holds};
      };
      best = {static_cast<int32_t>(t + runs(t - 1, m)), static_cast<int32_t>(t - 1), false};
      if (m >= kept_) offer(held_cut(t, m, near), true);
      if (m >= checkpoint_ && t > 2) offer(checkpoint_cut(t, m, near), false);
    }
    cells_[static_cast<size_t>(t * (slots_ + 1) + m)] = best;
  }

  Cut held_cut(int64_t t, int64_t m, Near& near) const {
    const Cut best = least(t, 0, near.held,
                           [&](int64_t y) { return y + 1 + runs(t - y - 1, m - kept_) + (y > 0 ? runs(y, m) : 0); });
    near.held = best.ahead;
    return best;
  }

  Cut checkpoint_cut(int64_t t, int64_t m, Near& near) const {
    const Cut best =
        least(t, 1, near.checkpoint, [&](int64_t y) { return y + runs(t - y, m - checkpoint_) + runs(y, m); });
    near.checkpoint = best.ahead;
    return best;
  }

  // The first of the best cuts in front of segments first, first + 1, ..., t - 2.
  template <class Runs>
  Cut least(int64_t t, int64_t first, int64_t near, const Runs& runs_of) const {
    const bool anywhere = t <= kCutAnywhere;
    const int64_t last = anywhere ? t - 2 : std::min(t - 2, near + kNear);
    Cut best{std::numeric_limits<int64_t>::max(), first};
    for (int64_t y = anywhere ? first : std::max(first, near - kNear); y <= last; ++y)
      if (const int64_t runs = runs_of(y); runs < best.runs) best = {runs, y};
    return best;
  }

  int64_t segments_, slot_ = 1, checkpoint_ = 0, kept_ = 0, slots_ = 0;
  std::vector<Cell> cells_;
  std::vector<Near> near_;  // by slots
};

class Planner {
 public:
  Planner(const SegmentCosts& costs, int64_t room)
      : costs_(costs), all_(room >= full_room(costs)), table_(costs, all_ ? 0 : room) {}

  SegmentPlan plan() {
    add(Kind::load, 0);
    reverse(0, costs_.segments, table_.slots());
    const auto is_back = [](const SegmentAction& a) { return a.kind == Kind::back; };
    plan_.forward = static_cast<size_t>(std::ranges::find_if(plan_.actions, is_back) - plan_.actions.begin());
    plan_.reruns = plan_.runs > costs_.segments;
    return std::move(plan_);
  }

 private:
  void add(Kind kind, int64_t segment) {
    plan_.actions.push_back({kind, segment});
    if (kind == Kind::run) ++plan_.runs;
  }
  void hold(int64_t bytes) {
    held_ += bytes;
    plan_.room = std::max(plan_.room, held_);
  }

  // Segments [begin, end) forward and back; the states before `begin` are held somewhere, and loaded.
  void reverse(int64_t begin, int64_t end, int64_t slots) {
    while (end - begin > 1) {
      const int64_t count = end - begin, ahead = all_ ? 0 : table_.ahead(count, slots), middle = begin + ahead;
      for (int64_t s = begin; s < middle; ++s) add(Kind::run, s);
      if (all_ || table_.holds(count, slots)) {
        add(Kind::run, middle);
        add(Kind::stash, middle);
        hold(costs_.kept);
        reverse(middle + 1, end, all_ ? 0 : slots - table_.kept());
        add(Kind::back, middle);
        hold(-costs_.kept);
        if (middle == begin) return;
      } else if (middle == end - 1) {
        add(Kind::run, middle);
        add(Kind::back, middle);
      } else {
        add(Kind::save, middle);
        hold(costs_.checkpoint);
        reverse(middle, end, slots - table_.checkpoint());
        add(Kind::drop, middle);
        hold(-costs_.checkpoint);
      }
      add(Kind::load, begin);
      end = middle;
    }
    add(Kind::run, begin);
    add(Kind::back, begin);
  }

  SegmentCosts costs_;
  bool all_;  // there is room for all, which needs no table and must not fail by rounding
  Table table_;
  SegmentPlan plan_;
  int64_t held_ = 0;
};

}  // namespace

int64_t least_segment(int64_t steps, int64_t block) {
  const int64_t most_steps = kMostSegments * block;
  return std::max<int64_t>((steps + most_steps - 1) / most_steps, 1) * block;
}

SegmentPlan plan_rebuilding(int64_t segments) {
  SegmentPlan plan;
  const auto add = [&](Kind kind, int64_t segment) { plan.actions.push_back({kind, segment}); };
  add(Kind::load, 0);
  for (int64_t s = 0; s < segments; ++s) {
    if (s > 0 && s + 1 < segments) add(Kind::save, s);
    add(Kind::run, s);
  }
  plan.forward = plan.actions.size();
  add(Kind::back, segments - 1);
  for (int64_t s = segments - 1; s-- > 0;)
    for (const Kind kind : {Kind::load, Kind::run, Kind::back}) add(kind, s);
  plan.runs = segments;
  plan.reruns = true;
  return plan;
}

int64_t full_room(const SegmentCosts& costs) { return (costs.segments - 1) * costs.kept; }

SegmentPlan plan_segments(const SegmentCosts& costs, int64_t room) {
  require(costs.segments >= 1 && costs.checkpoint >= 0 && costs.kept >= 0 && room >= 0,
          "{} segments, {} bytes of a checkpoint, {} bytes of a segment and a room of {} bytes make no plan",
          costs.segments, costs.checkpoint, costs.kept, room);
  return Planner(costs, room).plan();
}

}  // namespace stepnet
