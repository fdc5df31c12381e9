// Recomputation: a training net that needs fewer bytes, because it drops values of its forward part and computes them
// again right before the gradient operators that read them.
//
// Whole numbers of operators are run again, once each (a single level), in segments between cuts of the forward part:
// see core/passes/rerun_segments.h for what stays and what is dropped, and core/passes/recompute_cuts.h for how the
// cuts are chosen and in which sense they are the best. An operator that runs again writes to fresh names and reads
// what it read before, so all results have the same bits; a random one draws the same (`draws_as`). Never run again:
// operators with side effects or on blobs (a RecurrentNetwork has arguments of its own for that), those whose shapes
// depend on data, and those that read what has been overwritten in place.
//
// Bytes are all that the net's blobs take on the CPU while it runs with NetOptions::release_intermediates, those that
// exist before included, in every run from the first on. The promised peak is that of a dry run of the net that is
// returned, so it holds for each; finding it takes such a run for each plan that is looked at, not for each that is
// searched.
// Threads: immutable once built.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/passes/recompute_cuts.h"

namespace stepnet {

// What the blobs of a net take on the CPU: the most while it runs, and what is there between two runs. Memory that
// matrix products keep (product_bytes()) is not counted.
struct NetBytes {
  int64_t peak = 0, lasting = 0;
};

// Of the second dry run (core/tensor/dry_device.h) of the net, and so of every later one, with
// NetOptions::release_intermediates. Throws Error: the net's, and what needs the elements of a tensor.
NetBytes dry_run_bytes(const NetDef& net, const MemoryQuestion& question);

struct RecomputePlan {
  NetDef net;
  int64_t peak = 0;                // bytes
  double flops = 0;                // of one run of the net as it was given
  double extra_flops = 0;          // beside these
  std::vector<Segment> segments;   // that run again
  std::vector<std::string> again;  // the fresh names that the gradient operators read
};

class RecomputePlanner {
 public:
  // `first_gradient_op`: as in GradientResult; what comes before is the forward part. `peak_of`: the bytes of a net, if
  // not by dry_run_bytes. Whatever it says is what a plan promises; but of plans that differ little the cheapest may
  // then be missed, and more bytes may cost more. Throws Error as value_net and dry_run_bytes do.
  RecomputePlanner(const NetDef& training, int first_gradient_op, const MemoryQuestion& question,
                   std::function<int64_t(const NetDef&)> peak_of = {});

  // The plan of the least extra FLOPs whose peak is at most `bytes`; the net itself if that fits. Throws Error if
  // `bytes` is not positive or no plan fits; the message says the smallest number that does. More bytes never cost more
  // FLOPs where the cuts are exact.
  RecomputePlan plan(int64_t bytes) const;
  // The smallest peak for which there is a plan.
  int64_t least_bytes() const { return least_.peak; }
  int64_t bytes_of_all_kept() const { return whole_.peak; }
  // Plans for `points` bounds, evenly spread from the smallest peak to everything kept; of equal ones the first.
  std::vector<RecomputePlan> curve(int points) const;

 private:
  RecomputePlan plan_of(const Division& division) const;

  NetDef training_;
  std::function<int64_t(const NetDef&)> peak_of_;
  MemoryValues values_;
  CutPlanner cuts_;
  RecomputePlan whole_, least_;
};

RecomputePlan plan_recompute(const NetDef& training, int first_gradient_op, const MemoryQuestion& question,
                             int64_t bytes);

// The net in which these segments run again. `values` are the net's. Segments that cannot are left as they are.
// `again` gets the fresh names that gradient operators read, if it is given.
NetDef with_segments_again(const NetDef& training, const MemoryValues& values, const std::vector<Segment>& segments,
                           std::vector<std::string>* again = nullptr);

}  // namespace stepnet
