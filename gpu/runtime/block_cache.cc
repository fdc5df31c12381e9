#include "gpu/runtime/block_cache.h"

#include <algorithm>

namespace stepnet::gpu {
namespace {

constexpr size_t kMebi = size_t{1} << 20;
constexpr size_t kSmall = kMebi;  // blocks up to this size share segments of
constexpr size_t kSmallSegment = 2 * kMebi;
constexpr size_t kMedium = 10 * kMebi;  // and up to this size, segments of
constexpr size_t kMediumSegment = 20 * kMebi;
constexpr size_t kLeastRest = 512;  // of a small block, what is worth cutting off; of a large one, kSmall

void add_fences(Fences& fences, const Fences& others) {
  for (const auto& [stream, fence] : others)
    if (Fence& kept = fences[stream]; kept.number < fence.number) kept = fence;
}

}  // namespace

size_t BlockCache::segment_size(size_t size) {
  if (size <= kSmall) return kSmallSegment;
  if (size <= kMedium) return kMediumSegment;
  return (size + kSmallSegment - 1) / kSmallSegment * kSmallSegment;
}

// A small block never takes a large segment apart, where it would keep a large block from being made.
Block* BlockCache::smallest(FreeBlocks& blocks, size_t size) {
  Block wanted;
  wanted.size = size;
  const auto it = blocks.lower_bound(&wanted);
  if (it == blocks.end() || (size <= kSmall && (*it)->size > kSmallSegment)) return nullptr;
  return *it;
}

Block* BlockCache::take(size_t size, const void* stream, bool others, const void** from) {
  *from = nullptr;
  Block* found = smallest(free_[stream], size);
  if (!found && others)
    for (auto& [other, blocks] : free_) {
      Block* block = reserved_pools_.count(other) > 0 ? nullptr : smallest(blocks, size);
      if (block && (!found || BySize()(block, found))) found = block;
    }
  if (!found) return nullptr;
  if (found->stream != stream) *from = found->stream;
  free_[found->stream].erase(found);
  split(*found, size);
  found->free = false;
  found->stream = stream;
  return found;
}

void BlockCache::split(Block& block, size_t size) {
  const size_t rest = block.size - size;
  if (rest < (size <= kSmall ? kLeastRest : kSmall)) return;
  auto made = std::make_unique<Block>();
  Block& behind = *made;
  behind.data = block.data + size;
  behind.size = rest;
  behind.stream = block.stream;
  behind.fences = block.fences;
  behind.before = &block;
  behind.behind = block.behind;
  if (block.behind) block.behind->before = &behind;
  block.behind = &behind;
  block.size = size;
  free_[behind.stream].insert(&behind);
  blocks_[behind.data] = std::move(made);
}

void BlockCache::add_segment(std::byte* data, size_t size, const void* stream) {
  auto block = std::make_unique<Block>();
  block->data = data;
  block->size = size;
  block->stream = stream;
  free_[stream].insert(block.get());
  blocks_[data] = std::move(block);
  reserved_ += size;
}

Block* BlockCache::around(const std::byte* at) const {
  auto it = blocks_.upper_bound(const_cast<std::byte*>(at));
  if (it == blocks_.begin()) return nullptr;
  Block* block = (--it)->second.get();
  return at < block->data + block->size ? block : nullptr;
}

Block* BlockCache::find(std::byte* data) {
  const auto it = blocks_.find(data);
  return it == blocks_.end() || it->second->free ? nullptr : it->second.get();
}

// `other` is the neighbour before or behind.
void BlockCache::join(Block& block, Block* other) {
  if (!other || !other->free || other->stream != block.stream) return;
  free_[other->stream].erase(other);
  Block &first = other == block.before ? *other : block, &second = other == block.before ? block : *other;
  first.size += second.size;
  first.behind = second.behind;
  add_fences(first.fences, second.fences);
  if (first.behind) first.behind->before = &first;
  blocks_.erase(second.data);
}

void BlockCache::give_back(std::byte* data, Fences fences) {
  Block* block = find(data);
  if (!block) return;
  block->free = true;
  block->users.clear();
  block->fences = std::move(fences);
  join(*block, block->behind);
  Block* before = block->before;
  const bool joins = before && before->free && before->stream == block->stream;
  join(*block, before);
  Block* whole = joins ? before : block;
  free_[whole->stream].insert(whole);
}

// A segment may be free in pieces, of several streams.
std::vector<std::byte*> BlockCache::drop_free_segments() {
  std::vector<std::byte*> dropped;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    Block* first = it->second.get();
    bool used = first->before != nullptr;
    for (const Block* b = first; b && !used; b = b->behind) used = !b->free || reserved_pools_.count(b->stream) > 0;
    if (used) {
      ++it;
      continue;
    }
    dropped.push_back(first->data);
    for (Block *b = first, *next = nullptr; b; b = next) {
      next = b->behind;
      reserved_ -= b->size;
      free_[b->stream].erase(b);
      it = blocks_.erase(it);
    }
  }
  return dropped;
}

void BlockCache::hand_over(const void* pool, const void* stream) {
  const bool was_pool = reserved_pools_.erase(pool) > 0;
  free_.erase(pool);
  std::vector<std::byte*> free;
  for (auto& [data, block] : blocks_) {
    if (block->stream != pool) continue;
    block->stream = stream;
    if (was_pool) block->fences.clear();  // points in a captured graph
    if (block->free) free.push_back(data);
  }
  for (std::byte* data : free) {
    const auto it = blocks_.find(data);  // gone if it has joined its neighbour
    if (it == blocks_.end()) continue;
    it->second->free = false;
    give_back(data, std::move(it->second->fences));
  }
}

bool BlockCache::remembers(const void* stream) const {
  return std::ranges::any_of(blocks_, [stream](const auto& entry) {
    return entry.second->stream == stream || entry.second->users.count(stream) > 0;
  });
}

void BlockCache::forget(const void* stream, const void* other) {
  hand_over(stream, other);
  for (auto& [data, block] : blocks_)
    if (block->users.erase(stream) > 0 && block->stream != other) block->users.insert(other);
}

}  // namespace stepnet::gpu
