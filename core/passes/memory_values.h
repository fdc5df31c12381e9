// MemoryValues: what a training net computes, by values and storages instead of names, for passes that plan its memory.
//
// A value is what one operator writes to one output, or what a blob holds before the net runs. It is there until the
// next write to its storage: names that an Alias makes, blobs written in place and blobs written again share one.
// Operators before `forward` are the forward part, those from there on everything after it.
// Threads: immutable once built.
#pragma once

#include <limits>
#include <vector>

#include "core/passes/memory_count.h"

namespace stepnet {

struct MemoryValue {
  static constexpr int kNever = std::numeric_limits<int>::max();
  int writer = -1;  // operator; -1: it is there before the net runs
  int storage = 0;
  int alias_of = -1;         // the value that its writer made another name of
  int overwritten = kNever;  // the operator that writes the storage next
  std::vector<int> readers;  // operators that read its elements, rising
  // Somebody finds it by its name, so that it cannot be another blob: an operator on blobs behind the forward part that
  // reads it, one there that writes its storage, or a net in an argument.
  bool by_name = false;
};

struct MemoryStorage {
  int64_t bytes = 0;
  int first = MemoryValue::kNever;  // the operators that touch it, from here ...
  int last_forward = -1;            // ... to here in the forward part
  int last = -1;                    // ... to here in all
  bool lasting = false;             // not dropped while the net runs
};

struct MemoryValues {
  struct Op {
    SizedOp sized;
    std::vector<int> inputs;        // values whose elements are read; -1 for all other inputs
    std::vector<int> outputs;       // values; -1 for one that is absent
    std::vector<int> shape_inputs;  // values of which it reads the shapes alone
    // Running it again would not give the same values, or do more than give values: it writes files, works on blobs,
    // makes shapes that depend on data, or reads what is overwritten and cannot be made again.
    bool fixed = false;
  };

  int forward = 0;
  std::vector<Op> ops;
  std::vector<MemoryValue> values;
  std::vector<MemoryStorage> storages;
  int64_t lasting = 0;  // bytes of storages that are not dropped, and those that are reserved

  bool is_lasting(int value) const { return storages[values[value].storage].lasting; }
  bool is_read_backward(int value) const {
    return !values[value].readers.empty() && values[value].readers.back() >= forward;
  }
  // The last operator that needs the value where it is; -1 if none does.
  int last_use(int value) const;
  bool is_read_forward_from(int value, int op) const;  // by an operator of the forward part, from `op` on
};

// Throws Error as size_ops does.
MemoryValues value_net(const NetDef& net, int forward, const MemoryQuestion& question);

}  // namespace stepnet
