// BlockCache: which bytes of which segments are free, and for which stream.
//
// Memory comes from the driver in segments, which blocks are cut from: the smallest free block of the stream that is
// large enough, else the smallest of another stream, else a piece of a new segment. A freed block joins free
// neighbours of its stream. Nothing here talks to a device.
// Source: the scheme of PyTorch's caching allocator.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "stepnet/device.h"

namespace stepnet::gpu {

// A point in another stream's work behind which a free block may be reused. Of two points of one stream, the one with
// the larger number is the later.
struct Fence {
  uint64_t number = 0;
  std::shared_ptr<const void> event = {};
};
using Fences = std::map<const void*, Fence>;  // by stream

struct Block {
  std::byte* data = nullptr;
  size_t size = 0;
  const void* stream = nullptr;  // that a free one may be reused on as it is
  bool free = true;
  Block *before = nullptr, *behind = nullptr;       // neighbours in the segment
  std::set<const void*> users;                      // other streams whose work touches it
  Fences fences;                                    // of a free one: before it is used again
  MemoryCategory category = MemoryCategory::value;  // of a taken one
};

class BlockCache {
 public:
  // How large a segment has to be for a block of that size.
  static size_t segment_size(size_t size);

  // A block that is no longer free, or null if a segment has to be added first. `from`: the stream that it was freed
  // on, which the caller's has to wait for, or null if it is the caller's own. So has the caller for its fences.
  // `others`: may be one of another stream.
  Block* take(size_t size, const void* stream, bool others, const void** from);
  void add_segment(std::byte* data, size_t size, const void* stream);
  void give_back(std::byte* data, Fences fences = {});
  Block* find(std::byte* data);              // a taken block; null if there is none
  Block* around(const std::byte* at) const;  // a taken or free block that has the byte; null if no segment has it

  // Blocks under this name instead of a stream's are for nobody else, until they all become those of a stream: what a
  // captured graph works on, which is written whenever it is replayed.
  void reserve(const void* pool) { reserved_pools_.insert(pool); }
  void hand_over(const void* pool, const void* stream);
  // The stream is gone: its blocks become those of the other, which has waited for it.
  bool remembers(const void* stream) const;
  void forget(const void* stream, const void* other);

  // Takes the segments out that are free as a whole, but reserved ones: their addresses.
  std::vector<std::byte*> drop_free_segments();
  size_t reserved() const { return reserved_; }  // bytes of all segments

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->data < b->data;
    }
  };
  using FreeBlocks = std::set<Block*, BySize>;
  Block* smallest(FreeBlocks& blocks, size_t size);
  void split(Block& block, size_t size);
  void join(Block& block, Block* other);

  std::map<const void*, FreeBlocks> free_;  // by stream
  std::map<std::byte*, std::unique_ptr<Block>> blocks_;
  std::set<const void*> reserved_pools_;
  size_t reserved_ = 0;
};

}  // namespace stepnet::gpu
