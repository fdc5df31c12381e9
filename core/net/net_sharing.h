// What keeps names that share bytes (Alias) from being overwritten by operators that do not work in place.
//
// A name may still show what another shows when an operator writes it: by an Alias earlier in the net, or in the run
// before. An operator that may write over an input writes these bytes, and every name of them shows the new value. Any
// other gives the name it writes bytes of its own, and the other names keep what they show. So does the first that
// touches a name in a run, as what the name still shows is the last run's.
// Only the net's own aliases are known: a name that an Alias of another net has made to share bytes is written there.
// Threads: one run at a time.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/net/dataflow.h"

namespace stepnet {

// Of an operator that writes blobs which may share bytes with others.
struct StepSharing {
  bool any = false;                                              // it writes such blobs
  std::vector<std::shared_ptr<const std::vector<Blob*>>> blobs;  // by output: of the net, that it may share bytes with
  std::vector<bool> begins;  // by output: no operator has read or written the blob before
};

// By operator.
std::vector<StepSharing> find_sharing(std::span<const NetStep> steps, const Dataflow& flow);

// The outputs of one operator, for one call.
class SharedOutputs {
 public:
  // Gives outputs bytes of their own where they need them. `inputs`, what the kernel is to read: a value that it would
  // overwrite while it still reads it is copied.
  SharedOutputs(const NetStep& step, const StepSharing& sharing, std::vector<const Tensor*>& inputs);
  // After the call. Throws Error if an output in place of another name's bytes did not fit there.
  void check() const;

 private:
  bool is_shared(size_t output) const;
  bool is_taken(size_t output) const;
  void write_over(size_t output, std::vector<const Tensor*>& inputs);
  void part(size_t output, std::vector<const Tensor*>& inputs);

  const NetStep& step_;
  const StepSharing& sharing_;
  std::vector<Tensor> copies_;                                     // by input
  std::vector<std::pair<size_t, std::shared_ptr<Storage>>> over_;  // outputs, and the bytes that they are written to
};

}  // namespace stepnet
