#include "core/passes/recompute_cuts.h"

#include <algorithm>

namespace stepnet {
namespace {

// Operators 0 and `end`, and in between one of each of `most - 1` equal ranges: where the fewest bytes cross.
std::vector<int> choose_places(const RerunCosts& costs, int end, int most) {
  std::vector<int> places = {0};
  const int ranges = std::min(end, most) - 1;
  for (int r = 0; r < ranges; ++r) {
    const auto begin_of = [&](int range) { return static_cast<int>(1 + int64_t{end - 1} * range / ranges); };
    int best = begin_of(r);
    for (int i = best; i < begin_of(r + 1); ++i)
      if (costs.crossing(i) <= costs.crossing(best)) best = i;
    places.push_back(best);
  }
  if (end > 0) places.push_back(end);
  return places;
}

}  // namespace

CutPlanner::CutPlanner(const MemoryValues& net) : lasting_(net.lasting) {
  const RerunCosts costs(net);
  positions_ = choose_places(costs, net.forward, kMostPositions);
  floor_ = highest_ = net.lasting + costs.peak_afterwards();
  add_steps(costs, net.forward);
  int64_t kept = net.lasting;
  for (size_t to = 1; to < positions_.size(); ++to) {
    const RerunCost& keep = steps_[to].front().cost;
    highest_ = std::max(highest_, kept + keep.peak);
    kept += keep.kept;
  }
}

void CutPlanner::add_steps(const RerunCosts& costs, int forward) {
  const std::vector<int> places = choose_places(costs, forward, kMostCuts);
  const auto is_place = [&](int position) { return std::ranges::binary_search(places, positions_[position]); };
  steps_.resize(positions_.size());
  for (int to = 1; to < static_cast<int>(positions_.size()); ++to) {
    steps_[to].push_back({to - 1, false, costs.cost({positions_[to - 1], positions_[to], false})});
    for (int from = to - 1; from >= 0; --from) {
      if (positions_[to] - positions_[from] > kShort && !(is_place(from) && is_place(to))) continue;
      const RerunCost cost = costs.cost({positions_[from], positions_[to], true});
      if (cost.possible) steps_[to].push_back({from, true, cost});
    }
  }
}

// Fewer bytes that are kept are never worse, so one number per position is enough to know.
bool CutPlanner::fits(int64_t bytes) const {
  if (floor_ > bytes) return false;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> least(positions_.size(), kNone);
  least[0] = lasting_;
  for (size_t to = 1; to < positions_.size(); ++to)
    for (const Step& step : steps_[to])
      if (least[step.from] != kNone && least[step.from] + step.cost.peak <= bytes)
        least[to] = std::min(least[to], least[step.from] + step.cost.kept);
  return least.back() != kNone;
}

int64_t CutPlanner::least_bytes() const {
  int64_t low = floor_, high = highest_;  // `high` fits
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// Leaves what nothing beats in both; of much, one for each unit, and the one that keeps least of all, which fits
// whenever any does.
void CutPlanner::keep_best(Front& front, int64_t unit) {
  const auto keeps_less = [](const Entry& a, const Entry& b) {
    return a.kept != b.kept ? a.kept < b.kept : a.flops < b.flops;
  };
  if (front.size() > kMostExact) {
    const int64_t start = std::ranges::min_element(front, keeps_less)->kept;
    std::vector<const Entry*> best;
    for (const Entry& entry : front) {
      const auto at = static_cast<size_t>((entry.kept - start + unit - 1) / unit);
      if (at >= best.size()) best.resize(at + 1, nullptr);
      if (!best[at] || entry.flops < best[at]->flops) best[at] = &entry;
    }
    Front thin;
    for (const Entry* entry : best)
      if (entry) thin.push_back(*entry);
    front = std::move(thin);
  }
  std::ranges::sort(front, keeps_less);
  Front best;
  for (const Entry& entry : front)
    if (best.empty() || entry.flops < best.back().flops) best.push_back(entry);
  front = std::move(best);
}

CutPlanner::Front CutPlanner::front_at(int to, const std::vector<Front>& fronts, int64_t bytes) const {
  Front front;
  for (const Step& step : steps_[to]) {
    for (size_t e = 0; e < fronts[step.from].size(); ++e) {
      const Entry& entry = fronts[step.from][e];
      if (entry.kept + step.cost.peak > bytes) break;  // the others keep more
      front.push_back({entry.kept + step.cost.kept, entry.flops + step.cost.flops, step.from, e, step.again});
    }
  }
  keep_best(front, std::max<int64_t>(1, (bytes - lasting_) / kMostUnits));
  return front;
}

std::optional<Division> CutPlanner::cheapest(int64_t bytes) const {
  if (!fits(bytes)) return std::nullopt;
  std::vector<Front> fronts = {{Entry{.kept = lasting_}}};
  for (size_t to = 1; to < positions_.size(); ++to) fronts.push_back(front_at(static_cast<int>(to), fronts, bytes));
  return trace(fronts);
}

Division CutPlanner::trace(const std::vector<Front>& fronts) const {
  Division division;
  int at = static_cast<int>(fronts.size()) - 1;
  size_t entry = fronts.back().size() - 1;  // the last one costs least
  division.flops = fronts.back()[entry].flops;
  while (at > 0) {
    const Entry& e = fronts[at][entry];
    division.segments.push_back({positions_[e.from], positions_[at], e.again});
    entry = e.before;
    at = e.from;
  }
  std::ranges::reverse(division.segments);
  return division;
}

}  // namespace stepnet
