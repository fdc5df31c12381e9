// SegmentPlan: in which order a recurrent network runs segments of timesteps forward, again, and backward, so that what
// it holds meanwhile stays within a number of bytes, at the least work.
//
// Timesteps are cut into `segments` of equal cost, numbered in the order of the forward run. A segment's backward run
// needs what its forward run has kept; one segment at a time has room for that (the segment at work, which `room` does
// not count). Beside it a plan may hold checkpoints, which are the states before a segment, and whole segments with all
// that they kept. From a checkpoint the segments behind it can run forward again. The states before segment 0 are
// always there.
//
// The plan is the best one over all ways to hold both kinds, by dynamic programming over the number of segments and the
// room; of more than 24 segments it is found by a search that looks at a few places for each cut. Source: "mixed
// storage" of A. Gruslys, R. Munos, I. Danihelka, M. Lanctot and A. Graves, Memory-Efficient Backpropagation Through
// Time, 2016; with checkpoints alone its cost is that of A. Griewank and A. Walther, Algorithm 799: Revolve, 2000.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stepnet {

// More segments make a plan slow to find and save next to nothing.
constexpr int64_t kMostSegments = 1024;

// The fewest timesteps of a segment, in whole blocks of `block`, that cut `steps` timesteps into at most kMostSegments.
int64_t least_segment(int64_t steps, int64_t block);

struct SegmentCosts {
  int64_t segments = 1;
  int64_t checkpoint = 0;  // bytes of the states before a segment
  int64_t kept = 0;        // bytes of all that one segment keeps
};

struct SegmentAction {
  enum class Kind {
    load,   // the states before the segment come from where they are held
    run,    // forward, from the states that were loaded or that the segment before it has left
    save,   // the states before the segment, which the one before it has just left, become a checkpoint
    drop,   // this checkpoint goes
    stash,  // what the segment, which has just run, kept is held; the next one to run gets room of its own
    back,   // backward, with what it has just kept or what was held; that goes
  };
  Kind kind;
  int64_t segment;
  bool operator==(const SegmentAction&) const = default;
};

struct SegmentPlan {
  std::vector<SegmentAction> actions;
  size_t forward = 0;   // so many of them are the forward pass: all before the first `back`
  int64_t runs = 0;     // forward runs of a segment; without any room as many as there are segments is the least
  int64_t room = 0;     // the most bytes that checkpoints and held segments take at a time
  bool reruns = false;  // some segment runs forward more than once
};

// The plan with the fewest runs for at most `room` bytes; with no room at all there is one, too. Throws Error on
// negative numbers. Takes at most some tenths of a second for a thousand segments: bytes are counted in units of a few
// thousandths of the room, and rounded up.
SegmentPlan plan_segments(const SegmentCosts& costs, int64_t room);

// The plan that holds the states before every segment, and makes each segment's states again before its backward run;
// `run` behind the forward pass means that.
SegmentPlan plan_rebuilding(int64_t segments);

// The room from which on a larger one saves nothing: that for all segments but the one at work.
int64_t full_room(const SegmentCosts& costs);

}  // namespace stepnet
