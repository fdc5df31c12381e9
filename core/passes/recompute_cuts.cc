#include "core/passes/recompute_cuts.h"

#include <algorithm>

namespace stepnet {

CutPlanner::CutPlanner(const NetValues& net) : net_(net) {
  const SegmentCosts costs(net);
  choose_positions(costs);
  floor_ = net.lasting + costs.peak_afterwards();
  highest_ = floor_;
  int64_t kept = net.lasting;
  for (size_t from = 0; from + 1 < positions_.size(); ++from) {
    keep_.push_back(costs.cost({positions_[from], positions_[from + 1], false}));
    highest_ = std::max(highest_, kept + keep_.back().peak);
    kept += keep_.back().kept;
    std::vector<SegmentCost>& again = again_.emplace_back();
    for (size_t to = from + 1; to < positions_.size(); ++to)
      again.push_back(costs.cost({positions_[from], positions_[to], true}));
  }
}

void CutPlanner::choose_positions(const SegmentCosts& costs) {
  positions_.push_back(0);
  const int ranges = std::min(net_.forward, kMostCuts);
  for (int r = 0; r < ranges - 1; ++r) {
    const auto at = [&](int range) { return static_cast<int>(1 + int64_t{net_.forward - 1} * range / (ranges - 1)); };
    int best = at(r);
    for (int i = best; i < at(r + 1); ++i)
      if (costs.crossing(i) <= costs.crossing(best)) best = i;
    positions_.push_back(best);
  }
  if (net_.forward > 0) positions_.push_back(net_.forward);
}

// Fewer bytes that are kept are never worse, so one number per position is enough to know.
bool CutPlanner::fits(int64_t bytes) const {
  if (floor_ > bytes) return false;
  constexpr int64_t kNone = -1;
  std::vector<int64_t> least(positions_.size(), kNone);
  least[0] = net_.lasting;
  for (size_t from = 0; from + 1 < positions_.size(); ++from) {
    if (least[from] == kNone) continue;
    const auto reach = [&](size_t to, const SegmentCost& cost) {
      if (!cost.possible || least[from] + cost.peak > bytes) return;
      const int64_t kept = least[from] + cost.kept;
      if (least[to] == kNone || kept < least[to]) least[to] = kept;
    };
    reach(from + 1, keep_[from]);
    for (size_t to = from + 1; to < positions_.size(); ++to) reach(to, again_[from][to - from - 1]);
  }
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

namespace {

// Leaves what nothing beats in both; what costs the same is one.
template <class Front>
void keep_best(Front& front, size_t most, int64_t unit) {
  std::ranges::sort(
      front, [](const auto& a, const auto& b) { return a.kept != b.kept ? a.kept < b.kept : a.flops < b.flops; });
  const auto thin = [&front](int64_t unit) {
    Front best;
    for (const auto& entry : front) {
      if (!best.empty() && entry.flops >= best.back().flops) continue;
      // In one unit the last one costs least. The one that keeps least of all fits whenever any does.
      if (unit > 1 && best.size() > 1 && best.back().kept / unit == entry.kept / unit) best.pop_back();
      best.push_back(entry);
    }
    front = std::move(best);
  };
  thin(1);
  if (front.size() > most) thin(unit);
}

}  // namespace

CutPlanner::Front CutPlanner::front_at(int to, const std::vector<Front>& fronts, int64_t bytes) const {
  Front front;
  const auto extend = [&](int from, const SegmentCost& cost, bool again) {
    if (!cost.possible) return;
    for (size_t e = 0; e < fronts[from].size(); ++e) {
      const Entry& entry = fronts[from][e];
      if (entry.kept + cost.peak > bytes) break;  // the others keep more
      front.push_back({entry.kept + cost.kept, entry.flops + cost.flops, from, e, again});
    }
  };
  extend(to - 1, keep_[to - 1], false);
  for (int from = to - 1; from >= 0; --from) extend(from, again_[from][to - from - 1], true);
  keep_best(front, kMostRemembered, std::max<int64_t>(1, bytes / kMostRemembered));
  return front;
}

std::optional<Division> CutPlanner::cheapest(int64_t bytes) const {
  if (!fits(bytes)) return std::nullopt;
  std::vector<Front> fronts = {{Entry{.kept = net_.lasting}}};
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
