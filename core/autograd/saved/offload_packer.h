// OffloadPacker: what operators keep piece by piece waits for the backward pass as offloaded saved values do.
//
// Files, memory and errors: see stepnet/offload.h. Threads: as TensorPacker.
#pragma once

#include <memory>
#include <vector>

#include "core/operator/tensor_packer.h"
#include "stepnet/offload.h"

namespace stepnet::autograd {

// Without a tape: what is packed together waits and is
// read ahead as the saved values of one node are. The store goes after the last values that were packed.
class OffloadPacker : public TensorPacker {
 public:
  explicit OffloadPacker(const OffloadOptions& options);
  std::unique_ptr<PackedTensors> pack(std::vector<Tensor> values) override;
  OffloadCounters counters() const;

 private:
  std::shared_ptr<OffloadStore> store_;
};

}  // namespace stepnet::autograd
