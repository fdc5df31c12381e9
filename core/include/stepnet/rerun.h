// Recomputation: a region's saved values are not kept from the forward run, but made again when backward needs them.
//
// The first run of the region saves a token in place of each value, and the region's inputs. The first token that a
// backward pass unpacks runs the region again, up to the last value that somebody still needs, and each value that this
// makes goes when it has been unpacked; each pass makes its own. Inputs of a region inside another count as values that
// the outer region saves, so these are made outside-in; hooks around a region (such as an OffloadScope's) pack its
// inputs, and hooks set inside act on what is saved there.
//
// The second run draws the same random numbers, and is expected to be the same as the first: values of another number
// or type are Errors. It gets equal inputs, but not the same variables; it may call `grad`, but not `backward`. What
// `fn` captures is kept by it, and must not be written to between the runs.
//
// Memory: a chain of n equal operators that save their outputs of S bytes each, in k regions of n/k, has a peak of
// (k + n/k + 1) S over its forward and backward pass, the chain's input left out: the inputs of k - 1 regions, the
// values of one, and a gradient that makes another. Without regions it is (n + 2) S. Threads: as Variable; several
// passes may recompute one region, in turn.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "stepnet/variable.h"

namespace stepnet::autograd {

using Region = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

struct CheckpointOptions {
  bool early_stop = true;      // the second run ends with the last value that is needed
  bool restore_random = true;  // it draws what the first one drew
};

// fn(inputs). Throws Error, when the graph is run, if the second run differs or an input was written in place.
std::vector<Variable> checkpoint(Region fn, const std::vector<Variable>& inputs, const CheckpointOptions& options = {},
                                 Place place = Place::here());

struct RecomputedValues;

// For a scope: its passes share what they recompute, as for partial passes over one graph. A value goes when it has
// been unpacked, and all others with the scope.
class RecomputeGroup {
 public:
  RecomputeGroup();
  ~RecomputeGroup();
  RecomputeGroup(const RecomputeGroup&) = delete;
  RecomputeGroup& operator=(const RecomputeGroup&) = delete;

  uint64_t number() const { return number_; }
  void keep(std::shared_ptr<RecomputedValues> values);

 private:
  struct Kept;
  RecomputeGroup* before_;
  uint64_t number_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace stepnet::autograd
