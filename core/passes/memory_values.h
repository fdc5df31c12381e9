// MemoryValues: what a training net computes, for passes that plan its memory: the dataflow of its operators, with the
// bytes of what they read and write, and which of them cannot run again.
//
// Operators before `forward` are the forward part, those from there on everything after it.
// Threads: immutable once built. Errors: see value_net.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/net/dataflow.h"

namespace stepnet {

struct MemoryQuestion {
  // Types of all blobs that exist before the net is built: feeds, parameters, what an optimizer keeps.
  std::map<std::string, TensorType> feeds;
  std::set<std::string> keep = {};  // as NetOptions::keep
  // Of blobs whose shapes depend on data: the largest type.
  std::map<std::string, TensorType> bounds = {};
  // Of blobs for which neither shapes nor bounds say it, or that hold objects: the most bytes that they take.
  std::map<std::string, int64_t> bytes = {};
};

// Bytes of a tensor, rounded up as the allocator does; none of strings, which it does not hold. The type is known.
int64_t allocated_bytes(const TensorType& type);

struct MemoryValues {
  struct Op {
    BoundOp op;
    std::vector<int64_t> out_bytes;
    double flops = 0;
    // Running it again would not give the same values, or do more than give values: it writes files, works on blobs,
    // makes shapes that depend on data, or reads what is overwritten and cannot be made again.
    bool fixed = false;
  };

  int forward = 0;
  std::vector<Op> ops;
  Dataflow flow;
  std::vector<int> last_forward = {};  // by storage: the last operator of the forward part that touches it; -1: none
  // By value: somebody finds it by its name, so that it cannot be another blob: an operator on blobs behind the forward
  // part that reads it, one there that writes its storage, or a net in an argument.
  std::vector<bool> by_name = {};
  int64_t lasting = 0;  // bytes of storages that are not dropped

  const NetValue& value(int value) const { return flow.value(value); }
  const ValueStorage& storage(int storage) const { return flow.storages()[storage]; }
  bool is_lasting(int value) const { return storage(flow.value(value).storage).lasting; }
  bool is_read_backward(int value) const {
    const std::vector<int>& readers = flow.value(value).readers;
    return !readers.empty() && readers.back() >= forward;
  }
  // The last operator that needs the value where it is; -1 if none does.
  int last_use(int value) const;
  bool is_read_forward_from(int value, int op) const;  // by an operator of the forward part, from `op` on
};

// Throws Error: an operator that is wrong, shapes that do not fit, and blobs whose size is neither known nor given, all
// of them by name.
MemoryValues value_net(const NetDef& net, int forward, const MemoryQuestion& question);

}  // namespace stepnet
