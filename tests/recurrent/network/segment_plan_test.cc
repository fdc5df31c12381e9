// Plans of segments: counts that are known from elsewhere, the best of all ways by trying them, and a walk through each
// plan that checks what it relies on.
#include "recurrent/network/segment_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <compare>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "recurrent/network/rebuild.h"
#include "stepnet/error.h"

namespace stepnet::segment_plan_test {
namespace {

using Kind = SegmentAction::Kind;

// Acts a plan out. Returns what is wrong with it, or "".
std::string walk(const SegmentCosts& costs, const SegmentPlan& plan, int64_t room) {
  std::set<int64_t> checkpoints, held;
  int64_t states = -1, at_work = -1, next_back = costs.segments - 1, most = 0, runs = 0;
  for (const SegmentAction& a : plan.actions) {
    const int64_t s = a.segment;
    switch (a.kind) {
      case Kind::load:
        if (s != 0 && checkpoints.count(s) == 0 && held.count(s - 1) == 0) return "loads what is not there";
        states = s;
        break;
      case Kind::run:
        if (states != s) return "runs from other states";
        ++runs;
        at_work = s;
        states = s + 1;
        break;
      case Kind::save:
        if (states != s) return "saves other states";
        checkpoints.insert(s);
        break;
      case Kind::drop:
        if (checkpoints.erase(s) == 0) return "drops no checkpoint";
        break;
      case Kind::stash:
        if (at_work != s) return "holds a segment that has not just run";
        held.insert(s);
        at_work = -1;
        break;
      case Kind::back:
        if (s != next_back--) return "runs backward out of order";
        if (at_work != s && held.erase(s) == 0) return "runs backward without what was kept";
        at_work = -1;
    }
    most = std::max<int64_t>(most, static_cast<int64_t>(checkpoints.size()) * costs.checkpoint +
                                       static_cast<int64_t>(held.size()) * costs.kept);
  }
  if (next_back != -1) return "does not run all segments backward";
  if (!checkpoints.empty() || !held.empty()) return "leaves something";
  if (most > room) return "takes more room than it has";
  if (most != plan.room) return "says another room than it takes";
  if (runs != plan.runs) return "says another number of runs";
  return "";
}

// The least number of runs, by trying every cut.
int64_t least_runs(int64_t t, int64_t room, const SegmentCosts& costs,
                   std::map<std::pair<int64_t, int64_t>, int64_t>& known) {
  if (t <= 1) return t;
  if (const auto it = known.find({t, room}); it != known.end()) return it->second;
  int64_t best = t + least_runs(t - 1, room, costs, known);
  for (int64_t y = 0; room >= costs.kept && y < t; ++y)
    best = std::min(best,
                    y + 1 + least_runs(t - y - 1, room - costs.kept, costs, known) + least_runs(y, room, costs, known));
  for (int64_t y = 1; room >= costs.checkpoint && y < t; ++y)
    best = std::min(best,
                    y + least_runs(t - y, room - costs.checkpoint, costs, known) + least_runs(y, room, costs, known));
  return known[{t, room}] = best;
}

TEST(SegmentPlan, CheckpointsAloneCostWhatRevolveCosts) {
  // Forward runs with so many slots, one of which holds the first states: counts of Griewank and Walther's schedule
  // plus one run of each step that keeps what it makes.
  const int64_t never = int64_t{1} << 40;
  for (const auto& [steps, slots, runs] : {std::tuple<int64_t, int64_t, int64_t>{35, 6, 104},
                                           {100, 10, 322},
                                           {1000, 10, 4636},
                                           {1000, 32, 3405},
                                           {1000, 50, 2948},
                                           {1000, 100, 2898}}) {
    const SegmentPlan plan = plan_segments({steps, 1, never}, slots - 1);
    EXPECT_EQ(plan.runs, runs) << steps << " steps, " << slots << " slots";
    EXPECT_EQ(walk({steps, 1, never}, plan, slots - 1), "");
  }
}

TEST(SegmentPlan, IsTheBestOfAll) {
  for (const SegmentCosts& one : {SegmentCosts{1, 1, 3}, {1, 2, 3}, {1, 3, 1}, {1, 1, 1}, {1, 2, 7}})
    for (int64_t segments = 1; segments <= 9; ++segments)
      for (int64_t room = 0; room <= 9 * one.kept; ++room) {
        const SegmentCosts costs{segments, one.checkpoint, one.kept};
        std::map<std::pair<int64_t, int64_t>, int64_t> known;
        const SegmentPlan plan = plan_segments(costs, room);
        ASSERT_EQ(walk(costs, plan, room), "") << segments << " segments, room " << room;
        ASSERT_EQ(plan.runs, least_runs(segments, room, costs, known))
            << segments << " segments, checkpoint " << one.checkpoint << ", kept " << one.kept << ", room " << room;
      }
}

// All that a machine that acts plans out knows.
struct State {
  int64_t next_back = 0, states = -1, at_work = -1;
  std::set<int64_t> checkpoints, held;
  auto operator<=>(const State&) const = default;
};

// The least number of runs of all sequences of actions whatever, by a search through all states.
int64_t least_of_all_actions(const SegmentCosts& costs, int64_t room) {
  std::map<State, int64_t> known;
  std::deque<State> open;
  const auto reach = [&](State state, int64_t runs, bool ran) {
    if (static_cast<int64_t>(state.checkpoints.size()) * costs.checkpoint +
            static_cast<int64_t>(state.held.size()) * costs.kept >
        room)
      return;
    const auto [it, is_new] = known.emplace(state, runs);
    if (!is_new && it->second <= runs) return;
    it->second = runs;
    if (ran)
      open.push_back(std::move(state));
    else
      open.push_front(std::move(state));
  };
  reach({costs.segments - 1, 0, -1, {}, {}}, 0, false);
  while (!open.empty()) {
    const State at = open.front();
    open.pop_front();
    const int64_t runs = known.at(at);
    if (at.next_back < 0) return runs;
    const auto go = [&](const auto& change, bool ran) {
      State next = at;
      change(next);
      reach(std::move(next), runs + (ran ? 1 : 0), ran);
    };
    if (at.at_work == at.next_back || at.held.count(at.next_back) > 0)
      go(
          [](State& s) {
            if (s.at_work != s.next_back) s.held.erase(s.next_back);
            --s.next_back;
            s.at_work = -1;
          },
          false);
    if (at.states >= 0 && at.states <= at.next_back) {
      go([](State& s) { s.at_work = s.states++; }, true);
      go([](State& s) { s.checkpoints.insert(s.states); }, false);
    }
    if (at.at_work >= 0) go([](State& s) { s.held.insert(s.at_work), s.at_work = -1; }, false);
    go([](State& s) { s.states = 0; }, false);
    for (const int64_t c : at.checkpoints) {
      go([c](State& s) { s.states = c; }, false);
      go([c](State& s) { s.checkpoints.erase(c); }, false);
    }
    for (const int64_t h : at.held) {
      go([h](State& s) { s.states = h + 1; }, false);
      go([h](State& s) { s.held.erase(h); }, false);
    }
  }
  return -1;
}

TEST(SegmentPlan, NoSequenceOfActionsIsBetter) {
  for (const SegmentCosts& one : {SegmentCosts{1, 1, 3}, {1, 3, 1}, {1, 1, 1}, {1, 2, 3}})
    for (int64_t segments = 1; segments <= 5; ++segments)
      for (int64_t room = 0; room <= 3 * one.kept; ++room) {
        const SegmentCosts costs{segments, one.checkpoint, one.kept};
        ASSERT_EQ(plan_segments(costs, room).runs, least_of_all_actions(costs, room))
            << segments << " segments, checkpoint " << one.checkpoint << ", kept " << one.kept << ", room " << room;
      }
}

// Of many segments places for cuts are not all tried.
TEST(SegmentPlan, ManySegmentsTakeHardlyMoreThanTheLeast) {
  std::mt19937 random(5);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int64_t>(from, to)(random); };
  for (int i = 0; i < 20; ++i) {
    const SegmentCosts costs{draw(25, 260), draw(1, 5), draw(1, 60)};
    const int64_t room = draw(0, 100);
    std::map<std::pair<int64_t, int64_t>, int64_t> known;
    const SegmentPlan plan = plan_segments(costs, room);
    ASSERT_EQ(walk(costs, plan, room), "");
    EXPECT_LE(plan.runs, 1.001 * least_runs(costs.segments, room, costs, known))
        << costs.segments << " segments, checkpoint " << costs.checkpoint << ", kept " << costs.kept << ", room "
        << room;
  }
}

TEST(SegmentPlan, WithoutRoomEverySegmentStartsFromTheFirstStates) {
  const SegmentPlan plan = plan_segments({10, 4, 100}, 0);
  EXPECT_EQ(plan.runs, 55);
  EXPECT_EQ(plan.room, 0);
  EXPECT_TRUE(plan.reruns);
  EXPECT_EQ(walk({10, 4, 100}, plan, 0), "");
}

TEST(SegmentPlan, WithRoomForAllNothingRunsTwice) {
  const SegmentCosts costs{10, 7, 1000003};
  const SegmentPlan plan = plan_segments(costs, full_room(costs));
  EXPECT_EQ(plan.runs, 10);
  EXPECT_FALSE(plan.reruns);
  EXPECT_EQ(plan.actions[plan.forward], (SegmentAction{Kind::back, 9}));
  EXPECT_EQ(walk(costs, plan, full_room(costs)), "");
  EXPECT_TRUE(plan_segments(costs, full_room(costs) - 1).reruns);
}

TEST(SegmentPlan, CheckpointsThatCostNothingAreTaken) {
  const SegmentCosts costs{20, 0, 50};
  const SegmentPlan plan = plan_segments(costs, 0);
  EXPECT_EQ(plan.runs, 39);
  EXPECT_EQ(walk(costs, plan, 0), "");
}

TEST(SegmentPlan, CountsLargeSizesInCoarserUnits) {
  const SegmentCosts costs{100, 1000003, 40000013};
  int64_t before = int64_t{1} << 40;
  for (int64_t room = 0; room < full_room(costs); room += full_room(costs) / 37) {
    const SegmentPlan plan = plan_segments(costs, room);
    ASSERT_EQ(walk(costs, plan, room), "");
    EXPECT_LE(plan.runs, before);
    before = plan.runs;
  }
}

TEST(SegmentPlan, OneSegmentRunsOnce) {
  EXPECT_EQ(plan_segments({1, 5, 5}, 0).runs, 1);
  EXPECT_EQ(plan_segments({1, 0, 0}, 0).actions.size(), 3U);
}

TEST(SegmentPlan, RefusesNegativeNumbers) {
  EXPECT_THROW(plan_segments({0, 1, 1}, 1), Error);
  EXPECT_THROW(plan_segments({1, -1, 1}, 1), Error);
  EXPECT_THROW(plan_segments({1, 1, -1}, 1), Error);
  EXPECT_THROW(plan_segments({1, 1, 1}, -1), Error);
}

TEST(SegmentPlan, OfStatesThatAreMadeAgainHoldsThoseBeforeEachSegment) {
  using Actions = std::vector<SegmentAction>;
  const SegmentPlan plan = plan_rebuilding(3);
  EXPECT_EQ(plan.actions, (Actions{{Kind::load, 0},
                                   {Kind::run, 0},
                                   {Kind::save, 1},
                                   {Kind::run, 1},
                                   {Kind::run, 2},
                                   {Kind::back, 2},
                                   {Kind::load, 1},
                                   {Kind::run, 1},
                                   {Kind::back, 1},
                                   {Kind::load, 0},
                                   {Kind::run, 0},
                                   {Kind::back, 0}}));
  EXPECT_EQ(plan.forward, 5);
  EXPECT_TRUE(plan.reruns);
}

// Of some √T timesteps; none where they save little.
TEST(SegmentPlan, SegmentsOfStatesThatAreMadeAgain) {
  EXPECT_EQ(rebuilt_segment(100, 4), 12);
  EXPECT_EQ(rebuilt_segment(100, 1), 10);
  EXPECT_EQ(rebuilt_segment(35, 14), 14);
  EXPECT_EQ(rebuilt_segment(50, 8), 8);
  EXPECT_EQ(rebuilt_segment(1000, 512), 512);
  EXPECT_EQ(rebuilt_segment(16, 14), 0);
  EXPECT_EQ(rebuilt_segment(8, 8), 0);
  EXPECT_EQ(rebuilt_segment(1, 2), 0);
  EXPECT_EQ(rebuilt_segment(0, 2), 0);
}

}  // namespace
}  // namespace stepnet::segment_plan_test
