// Cuts: which segments a net's forward part is divided into so that its peak is under a bound at the least extra FLOPs.
//
// Divisions into segments (core/passes/rerun_segments.h), each kept or run again, are compared by dynamic programming
// over the operators between which a cut may lie: of all divisions of what lies before a position, those are remembered
// that no other beats both in the bytes that they keep and in FLOPs. The result is exact, the cheapest of all divisions
// by the costs of RerunCosts, as long as
//   - the forward part has at most kMostCuts operators. In a longer one, a segment that runs again has at most
//     kShort operators, or begins and ends at one of kMostCuts places: of as many equal ranges, in each the one where
//     the fewest bytes cross. Beyond kMostPositions operators, cuts lie only at so many places, chosen alike;
//   - no position has more than kMostExact divisions to compare. Of more, one is remembered for each unit of a
//     1/kMostUnits part of the bytes that the bound leaves beside what lasts. The result then still keeps to the bound,
//     and costs no more than the cheapest of these divisions whose peak is below the bound by a unit per segment.
// Time: quadratic in operators up to kMostCuts of them, then linear, times the divisions that are remembered.
// Threads: immutable once built.
#pragma once

#include <optional>
#include <vector>

#include "core/passes/rerun_segments.h"

namespace stepnet {

struct Division {
  std::vector<Segment> segments;  // from the first operator to the end of the forward part; neighbours may both be kept
  double flops = 0;               // of operators that run again
};

class CutPlanner {
 public:
  static constexpr int kMostCuts = 128, kShort = 32, kMostPositions = 2048;
  static constexpr int kMostExact = 1 << 16, kMostUnits = 4096;

  explicit CutPlanner(const MemoryValues& net);

  // The cheapest division whose peak, by the costs of its segments, is at most that; none if there is none.
  std::optional<Division> cheapest(int64_t bytes) const;
  // The smallest bound for which there is a division.
  int64_t least_bytes() const;

 private:
  struct Step {
    int from = 0;  // position
    bool again = false;
    RerunCost cost;
  };
  struct Entry {
    int64_t kept = 0;
    double flops = 0;
    int from = -1;      // position
    size_t before = 0;  // entry there
    bool again = false;
  };
  using Front = std::vector<Entry>;  // bytes rise, FLOPs fall

  void add_steps(const RerunCosts& costs, int forward);
  bool fits(int64_t bytes) const;
  Front front_at(int to, const std::vector<Front>& fronts, int64_t bytes) const;
  Division trace(const std::vector<Front>& fronts) const;
  static void keep_best(Front& front, int64_t unit);

  int64_t lasting_ = 0;
  std::vector<int> positions_;            // operators that a segment may begin with, and the end
  std::vector<std::vector<Step>> steps_;  // by the position that they lead to
  int64_t floor_ = 0;                     // of every division
  int64_t highest_ = 0;                   // the peak if everything is kept
};

}  // namespace stepnet
