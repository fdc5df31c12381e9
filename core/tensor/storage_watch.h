// Which storages are made while somebody watches.
//
// Threads: those of all threads are seen; a watch may be asked by any.
#pragma once

#include <mutex>
#include <unordered_set>

#include "stepnet/tensor.h"

namespace stepnet {

// While it lives, it notes every storage that is made. An address that it has noted never belongs to a storage that was
// there before, as that one would have had to be gone before the other could be made.
class StorageWatch {
 public:
  StorageWatch();
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  bool has_seen(const Storage* storage) const;
  static void made(const Storage* storage);  // by the storage itself

 private:
  mutable std::mutex lock_;
  std::unordered_set<const Storage*> seen_;
};

}  // namespace stepnet
