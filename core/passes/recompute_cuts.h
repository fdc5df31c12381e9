// Cuts: which segments a net's forward part is divided into so that its peak is under a bound at the least extra FLOPs.
//
// Segments (core/passes/segments.h) lie between cut positions. Every division into segments, each kept or run again, is
// considered, by dynamic programming over positions from the first operator on: of all divisions of what lies before a
// position, those are remembered that no other beats both in the bytes that they keep and in FLOPs. So the result is
// the cheapest of all divisions, by the costs of SegmentCosts, as long as
//   - the forward part has at most kMostCuts positions. With more operators, only so many of them are positions: of as
//     many equal ranges, in each the one where the fewest bytes cross;
//   - no position remembers more than kMostRemembered divisions. Then the bytes that are kept are counted in units of a
//     1/kMostRemembered part of the bound, rounded up; so the result costs no more than the cheapest division of all
//     whose peak is below the bound by at least kMostCuts / kMostRemembered of it.
// Time: quadratic in positions, times the divisions that are remembered.
// Threads: immutable once built.
#pragma once

#include <optional>
#include <vector>

#include "core/passes/segments.h"

namespace stepnet {

struct Division {
  std::vector<Segment> segments;  // from the first operator to the end of the forward part; neighbours may both be kept
  double flops = 0;
};

class CutPlanner {
 public:
  static constexpr int kMostCuts = 160;
  static constexpr int kMostRemembered = 4096;

  explicit CutPlanner(const NetValues& net);

  const std::vector<int>& positions() const { return positions_; }
  // The cheapest division whose peak, by the costs of its segments, is at most that; none if there is none.
  std::optional<Division> cheapest(int64_t bytes) const;
  // The smallest bound for which there is a division.
  int64_t least_bytes() const;

 private:
  struct Entry {
    int64_t kept = 0;
    double flops = 0;
    int from = -1;      // position
    size_t before = 0;  // entry there
    bool again = false;
  };
  using Front = std::vector<Entry>;  // bytes rise, FLOPs fall

  void choose_positions(const SegmentCosts& costs);
  bool fits(int64_t bytes) const;
  Front front_at(int to, const std::vector<Front>& fronts, int64_t bytes) const;
  Division trace(const std::vector<Front>& fronts) const;

  const NetValues& net_;
  std::vector<int> positions_;
  std::vector<SegmentCost> keep_;                // per position: the segment from there to the next, kept
  std::vector<std::vector<SegmentCost>> again_;  // per position, and position after it: the segment between, run again
  int64_t floor_ = 0;                            // of every division
  int64_t highest_ = 0;                          // the peak if everything is kept
};

}  // namespace stepnet
