// RunFolder: where a training run keeps its checkpoints.
//
//   <folder>/checkpoint-<iteration>.stepnet   the last two
//   <folder>/latest                           the name of the newest, replaced last
//   <folder>/best.stepnet                     of the best validation so far
//   <folder>/metrics.jsonl
//
// Every file is whole at any moment: whatever kills the process, the run goes on from the checkpoint before.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/tensor.h"

namespace stepnet {

// What a checkpoint holds: tensors and short texts by name.
struct Snapshot {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> texts;

  const std::string& text(const std::string& name) const;  // throws Error if there is none
  int64_t number(const std::string& name) const;
  double real(const std::string& name) const;
};

Snapshot load_snapshot(const std::string& path);  // throws Error that names the file

class RunFolder {
 public:
  enum class Open { fresh, existing };
  // fresh: makes the folder (not its parents) and throws Error if a run is in it; existing: throws Error if none is.
  // Both throw Error if the folder cannot be written.
  RunFolder(std::string path, Open how);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  Snapshot latest() const;
  void save(const Snapshot& snapshot, int64_t iteration);
  void save_best(const Snapshot& snapshot);

 private:
  std::string latest_name() const;  // "" if there is none

  std::string path_;
};

// The file to sample from: the best checkpoint if there is one, else the latest. Throws Error if there is neither.
std::string best_checkpoint(const std::string& folder);

}  // namespace stepnet
