// FolderLock: one process at a time writes to a folder.
//
// The lock is flock() on a file in the folder, which holds the number of the process. It goes with the
// process, however that ends: a file that a killed process left is no lock. The file goes with this object. Where the
// file system has no locks (some network ones), there is none, and note() says so. Threads: one thread at a time.
#pragma once

#include <string>

#include "stepnet/file_place.h"

namespace stepnet {

class FolderLock {
 public:
  // Throws Error that names the other process if the folder is locked, or if there can be no file.
  explicit FolderLock(FilePlace file);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  const std::string& note() const { return note_; }  // why there is no lock; "" if there is one

 private:
  bool try_lock();

  FilePlace file_;
  std::string note_;
  int fd_ = -1;
};

}  // namespace stepnet
