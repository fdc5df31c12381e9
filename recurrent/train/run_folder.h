// RunFolder: where a training run keeps what it writes.
//
//   <folder>/iteration-<n>.ckpt, latest   the last two checkpoints, and which is the newest (stepnet/checkpoint.h)
//   <folder>/best/best.ckpt               the checkpoint of the best validation so far
//   <folder>/parameters.minidb            the last parameters, as a database of the public format
//   <folder>/metrics.jsonl                unless another file was asked for
//   <folder>/lock                         while a run writes there (core/io/folder_lock.h)
//
// Every file but the metrics is whole at any moment, on the disk too: whatever kills the process or the machine, the
// run goes on from a checkpoint before. What a killed process was writing aside is removed when the run goes on. A run
// folder may come from anybody: what is in it is found without following links, and must be regular files. Threads: one
// thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/io/folder_lock.h"
#include "stepnet/checkpoint.h"
#include "stepnet/workspace.h"

namespace stepnet {

class RunFolder {
 public:
  enum class Open { fresh, existing };
  // fresh: makes the folder, not its parents, which goes again if nothing is written; throws Error if a run is in it.
  // existing: throws Error if none is. Both throw Error if files cannot be made in it, or another run has it.
  RunFolder(std::string path, Open how);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  FilePlace file(const std::string& name) const { return {root_, name}; }
  const std::string& note() const { return lock_->note(); }  // "" if nothing is to be said
  LoadedCheckpoint latest() const;
  void save(const Checkpoint& contents, int64_t iteration);
  void save_best(const Checkpoint& contents);
  void save_parameters(const Workspace& workspace, const std::vector<std::string>& names);

 private:
  std::string path_;
  FileRootPtr root_;
  bool made_ = false;
  std::optional<FolderLock> lock_;
};

// The run's best checkpoint, or the latest if there is no best. Throws Error if there is neither.
Checkpoint load_best(const std::string& folder);

// What a checkpoint says under that name; throws Error if it says nothing, or no number.
const std::string& checkpoint_text(const Checkpoint& contents, const std::string& name);
int64_t checkpoint_int(const Checkpoint& contents, const std::string& name);
double checkpoint_real(const Checkpoint& contents, const std::string& name);

}  // namespace stepnet
