#include "core/tensor/storage_watch.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace stepnet {
namespace {

struct Watches {
  std::mutex lock;
  std::vector<StorageWatch*> all;
};

Watches& watches() {
  static Watches watches;
  return watches;
}

// Asked by every storage that is made, so that it must cost nothing where nobody watches.
std::atomic<int> g_watches{0};

}  // namespace

StorageWatch::StorageWatch() {
  Watches& w = watches();
  const std::lock_guard lock(w.lock);
  w.all.push_back(this);
  ++g_watches;
}

StorageWatch::~StorageWatch() {
  Watches& w = watches();
  const std::lock_guard lock(w.lock);
  std::erase(w.all, this);
  --g_watches;
}

bool StorageWatch::has_seen(const Storage* storage) const {
  const std::lock_guard lock(lock_);
  return seen_.contains(storage);
}

void StorageWatch::made(const Storage* storage) {
  if (g_watches.load(std::memory_order_relaxed) == 0) return;
  Watches& w = watches();
  const std::lock_guard lock(w.lock);
  for (StorageWatch* watch : w.all) {
    const std::lock_guard own(watch->lock_);
    watch->seen_.insert(storage);
  }
}

}  // namespace stepnet
