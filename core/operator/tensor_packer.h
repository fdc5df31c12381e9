// TensorPacker: puts values that a backward pass will read somewhere else while the forward pass still runs.
//
// A RunContext may carry one. An operator that works through its data piece by piece hands over what it keeps of a
// piece as soon as that has run, and asks for it when its derivative comes to the piece.
// Threads: pack() and unpack() are called by one thread at a time; what was packed may be unpacked on another thread.
#pragma once

#include <memory>
#include <vector>

#include "stepnet/tensor.h"

namespace stepnet {

// Values that were packed together. They go with this.
class PackedTensors {
 public:
  virtual ~PackedTensors() = default;
  // The values in their order, with the elements that they had. May be called again; throws Error if they are lost.
  virtual std::vector<Tensor> unpack() = 0;
};

class TensorPacker {
 public:
  virtual ~TensorPacker() = default;
  // The values must not be written any more; whoever calls lets go of them. Throws Error if they cannot be put away.
  virtual std::unique_ptr<PackedTensors> pack(std::vector<Tensor> values) = 0;
};

}  // namespace stepnet
