// KeepValues: says to operators on blobs that a backward pass runs whose kept values another pass will read.
//
// Threads: of the thread that is in the scope.
#pragma once

namespace stepnet {

// For a scope: a backward pass must leave what the forward pass kept as it is, where it would otherwise overwrite it.
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

}  // namespace stepnet
