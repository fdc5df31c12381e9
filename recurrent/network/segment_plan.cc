#include "recurrent/network/segment_plan.h"

#include <algorithm>
#include <numeric>

#include "stepnet/error.h"

namespace stepnet {
namespace {

using Kind = SegmentAction::Kind;

constexpr int64_t kMostSlots = 4096;

// The least numbers of runs, by segments and by slots of room, and how they are reached.
class Table {
 public:
  Table(const SegmentCosts& costs, int64_t room) : segments_(costs.segments) {
    const int64_t useful = std::min(room, full_room(costs));
    slot_ = std::max<int64_t>(std::gcd(costs.checkpoint, costs.kept), useful / kMostSlots + 1);
    checkpoint_ = slots_for(costs.checkpoint);
    kept_ = slots_for(costs.kept);
    slots_ = useful / slot_;
    cells_.resize(static_cast<size_t>((segments_ + 1) * (slots_ + 1)));
    for (int64_t t = 1; t <= segments_; ++t)
      for (int64_t m = 0; m <= slots_; ++m) fill(t, m);
  }

  int64_t slots() const { return slots_; }
  int64_t kept() const { return kept_; }
  int64_t checkpoint() const { return checkpoint_; }
  int64_t runs(int64_t t, int64_t m) const { return at(t, m).runs; }
  // The number of segments in front of a checkpoint; 0: the first segment is held; all but the last: without one.
  int64_t ahead(int64_t t, int64_t m) const { return at(t, m).ahead; }

 private:
  struct Cell {
    int64_t runs = 0;
    int32_t ahead = 0;
  };
  int64_t slots_for(int64_t bytes) const { return (bytes + slot_ - 1) / slot_; }
  const Cell& at(int64_t t, int64_t m) const { return cells_[static_cast<size_t>(t * (slots_ + 1) + m)]; }

  void fill(int64_t t, int64_t m) {
    Cell best{1, 0};
    if (t > 1) {
      best = {t + runs(t - 1, m), static_cast<int32_t>(t - 1)};
      const auto offer = [&](int64_t runs, int64_t ahead) {
        if (runs < best.runs) best = {runs, static_cast<int32_t>(ahead)};
      };
      if (m >= kept_) offer(1 + runs(t - 1, m - kept_), 0);
      for (int64_t y = 1; m >= checkpoint_ && y < t - 1; ++y) offer(y + runs(t - y, m - checkpoint_) + runs(y, m), y);
    }
    cells_[static_cast<size_t>(t * (slots_ + 1) + m)] = best;
  }

  int64_t segments_, slot_ = 1, checkpoint_ = 0, kept_ = 0, slots_ = 0;
  std::vector<Cell> cells_;
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
      const int64_t ahead = all_ ? 0 : table_.ahead(end - begin, slots);
      if (ahead == 0) return reverse_holding(begin, end, slots);
      const int64_t middle = begin + ahead;
      for (int64_t s = begin; s < middle; ++s) add(Kind::run, s);
      if (middle == end - 1) {
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

  // The first segment is held until the others have run backward.
  void reverse_holding(int64_t begin, int64_t end, int64_t slots) {
    add(Kind::run, begin);
    add(Kind::stash, begin);
    hold(costs_.kept);
    reverse(begin + 1, end, all_ ? 0 : slots - table_.kept());
    add(Kind::back, begin);
    hold(-costs_.kept);
  }

  SegmentCosts costs_;
  bool all_;  // there is room for all, which needs no table and must not fail by rounding
  Table table_;
  SegmentPlan plan_;
  int64_t held_ = 0;
};

}  // namespace

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
