// What the blobs of a net take while it runs, counted without running it.
//
// The count follows Net with `release_intermediates`, byte for byte: blobs are resized as Tensor::resize does, blobs of
// one storage count once, sizes are rounded up to the allocator's 64 bytes, and what nobody outside asks for is dropped
// after its last reader. What lasts is there before the second run, so the peak is that of the second run. Memory that
// kernels take for themselves, and what matrix products keep (product_bytes()), is not counted.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/operator/bound_op.h"

namespace stepnet {

struct MemoryQuestion {
  // Types of all blobs that exist before the net is built: feeds, parameters, what an optimizer keeps.
  std::map<std::string, TensorType> feeds;
  std::set<std::string> keep = {};  // as NetOptions::keep
  // Of blobs whose types cannot be said without data, or that hold objects: the most bytes that they take.
  std::map<std::string, int64_t> bytes = {};
  // Bytes beside the blobs that are to be counted with them, such as the most that kernels take for themselves.
  int64_t reserved = 0;
};

// Bytes of a tensor, rounded up as the allocator does; none of strings, which it does not hold. The type is known.
int64_t allocated_bytes(const TensorType& type);

// An operator, and the allocated bytes of every tensor that it reads and writes; 0 if absent.
struct SizedOp {
  BoundOp op;
  std::vector<bool> reads;  // per input: its values are read
  std::vector<TensorType> in, out;
  std::vector<int64_t> in_bytes, out_bytes;
  double flops = 0;
};

// Throws Error: an operator that is wrong, shapes that do not fit, and blobs whose size is neither known nor given, all
// of them by name.
std::vector<SizedOp> size_ops(const NetDef& net, const MemoryQuestion& question);

// The blobs that are not dropped: what exists before, what the net reads before it writes it, its external inputs and
// outputs, and what is kept.
std::set<std::string> lasting_blobs(const NetDef& net, const MemoryQuestion& question);

struct MemoryCount {
  int64_t peak = 0;           // bytes of all blobs together, and those that are reserved
  int peak_op = -1;           // the operator that runs then; -1 if none takes more than what lasts
  int64_t lasting = 0;        // bytes that are there between two runs
  std::vector<int64_t> live;  // per operator, while it runs
};

MemoryCount count_memory(const NetDef& net, const MemoryQuestion& question);

}  // namespace stepnet
