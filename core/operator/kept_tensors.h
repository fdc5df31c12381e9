// What operators on blobs keep between a forward and a backward pass, for whoever runs these apart from each other.
//
// Threads: a scope is of its thread; registration runs before main.
#pragma once

#include <optional>
#include <vector>

#include "stepnet/workspace.h"

namespace stepnet {

// For a scope: a backward pass must leave what the forward pass kept as it is, where it would otherwise overwrite it,
// because another pass will read it.
class KeepValues {
 public:
  explicit KeepValues(bool keep = true);
  ~KeepValues();
  KeepValues(const KeepValues&) = delete;
  KeepValues& operator=(const KeepValues&) = delete;
  static bool now();  // whether this thread is in such a scope

 private:
  bool before_;
};

// The tensors that an object keeps. They may be emptied, and must be what they were when a backward pass runs.
using KeptTensors = std::vector<Tensor*>;

// Adds a function for objects of one type, which does as `settle_kept` says, or nothing if the blob holds another.
bool register_settling(std::optional<KeptTensors> (*settle)(Blob&));
// Tells the object in the blob that it has run for now: it lets go of everything but what a backward pass reads. No
// tensors if the blob holds no such object.
KeptTensors settle_kept(Blob& blob);

}  // namespace stepnet
