// What an OffloadStore knows of one value; for its own files.
#pragma once

#include <atomic>

#include "core/autograd/saved/offload_file.h"
#include "core/autograd/saved/offload_store.h"

namespace stepnet::autograd {

// All but `given_up` is under the store's lock, or the thread's alone while `busy`.
struct OffloadStore::Entry {
  enum class Stage { queued, stored, failed };

  uint64_t order = 0;            // of saving
  std::vector<uint64_t> groups;  // the sequence numbers of the nodes that saved it
  std::string who;               // saved it first, for messages
  size_t bytes = 0;
  Device device;

  Stage stage = Stage::queued;
  bool busy = false;        // the thread is at it
  bool to_be_read = false;  // is in the queue of reads, or being read
  std::atomic<bool> given_up{false};

  Tensor value;                   // until it is stored
  std::weak_ptr<Storage> memory;  // where its bytes are, if that lives and has this version
  size_t offset = 0;
  uint64_t version = 0;
  bool is_original = true;         // `memory` is what was saved, not what was read
  std::shared_ptr<Storage> ahead;  // read, and not asked for yet
  Tensor host;                     // the copy in host memory, if there is no file
  OffloadFile file;                // else
  uint32_t checksum = 0;
  std::string problem;  // of the write, or of the last read

  std::shared_ptr<Storage> in_memory() const {
    std::shared_ptr<Storage> storage = memory.lock();
    return storage && storage->version() == version ? storage : nullptr;
  }
};

}  // namespace stepnet::autograd
