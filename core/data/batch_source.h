// BatchSource: where training takes its batches from.
//
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "stepnet/tensor.h"

namespace stepnet {

// What one run of the net reads, by blob, on the CPU.
struct Batch {
  std::map<std::string, Tensor> blobs;
  int64_t samples = 0;
  double share = 1;    // of the whole batch's samples, where this is a part of it
  bool starts = true;  // nothing of the batch before goes on in it, so carried states start anew
};

// One of the parts of a batch that several processes have: of a list of n the elements [begin(n), end(n)).
struct Shard {
  int64_t index = 0, count = 1;
  int64_t begin(int64_t n) const { return n * index / count; }
  int64_t end(int64_t n) const { return n * (index + 1) / count; }
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Fills the batch, whose tensors may be the ones of the batch before, and moves on; there is always a next one.
  virtual void next(Batch& batch) = 0;
  // All that decides which batches follow, beside what the source was made of. Throws Error out of range.
  virtual int64_t position() const = 0;
  virtual void set_position(int64_t position) = 0;
};

}  // namespace stepnet
