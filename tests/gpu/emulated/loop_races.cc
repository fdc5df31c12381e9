#include "tests/gpu/emulated/loop_races.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/gpu/emulated/device_memory.h"

namespace emulated {
namespace {

// The device gives memory in multiples of a page.
constexpr size_t kPageBytes = 512, kRecent = 1024;

const char* verb(bool writes) { return writes ? "writes" : "reads"; }

std::string name(LoopThread t) { return fmt::format("thread {} of block {}", t.thread, t.block); }

}  // namespace

LoopRaces::LoopRaces(unsigned blocks, unsigned threads, const char* rooms, size_t room_stride, size_t room_bytes,
                     size_t unit)
    : blocks_(blocks),
      threads_(threads),
      rooms_(rooms),
      room_stride_(room_stride),
      room_bytes_(room_bytes),
      unit_(unit),
      epochs_(blocks, 1),
      known_(blocks, Known(blocks, 0)),
      shared_(blocks * (room_bytes / unit + 1)),
      recent_(kRecent) {}

// What a thread has acquired is known to its block when that has synchronized.
void LoopRaces::synchronize(unsigned block) {
  ++epochs_[block];
  for (auto it = acquired_.begin(); it != acquired_.end();) {
    if (it->first.first != block) {
      ++it;
      continue;
    }
    for (unsigned b = 0; b < blocks_; ++b) known_[block][b] = std::max(known_[block][b], it->second[b]);
    it = acquired_.erase(it);
  }
}

void LoopRaces::release(LoopThread by, const void* counter) {
  Known& released = released_.try_emplace(counter, blocks_, 0).first->second;
  const Known& known = known_by(by);
  for (unsigned b = 0; b < blocks_; ++b) released[b] = std::max(released[b], known[b]);
  released[by.block] = std::max(released[by.block], epochs_[by.block]);
}

void LoopRaces::acquire(LoopThread by, const void* counter) {
  const auto released = released_.find(counter);
  if (released == released_.end()) return;
  Known& known = acquired_.try_emplace({by.block, by.thread}, known_[by.block]).first->second;
  for (unsigned b = 0; b < blocks_; ++b) known[b] = std::max(known[b], released->second[b]);
}

const LoopRaces::Known& LoopRaces::known_by(LoopThread by) const {
  const auto acquired = acquired_.find({by.block, by.thread});
  return acquired == acquired_.end() ? known_[by.block] : acquired->second;
}

bool LoopRaces::is_before(unsigned block, Last last, LoopThread by) const {
  if (last.epoch == 0) return true;
  if (block == by.block) return last.epoch < epochs_[block] || last.thread == by.thread;
  return last.epoch < known_by(by)[block];
}

// In an epoch, reads of one thread or of several.
void LoopRaces::note(Last& last, Epoch epoch, unsigned thread) {
  const bool several = last.epoch == epoch && last.thread != thread;
  last = {epoch, several ? kSeveral : static_cast<uint16_t>(thread)};
}

std::string LoopRaces::access(LoopThread by, const void* at, size_t bytes, bool writes) {
  const auto offset = static_cast<size_t>(static_cast<const char*>(at) - rooms_);
  if (offset >= blocks_ * room_stride_) return global_access(by, reinterpret_cast<uintptr_t>(at), bytes, writes);
  const size_t block = offset / room_stride_, within = offset % room_stride_;
  if (block != by.block || within + bytes > room_bytes_)
    return fmt::format("{} {} {} bytes at {} of block {}'s {} of shared memory", name(by), verb(writes), bytes, within,
                       block, room_bytes_);
  return shared_access(by, within, bytes, writes);
}

std::string LoopRaces::shared_access(LoopThread by, size_t at, size_t bytes, bool writes) {
  SharedUnit* const units = shared_.data() + by.block * (room_bytes_ / unit_ + 1);
  const Epoch now = epochs_[by.block];
  const auto other = [&](Last last) { return last.epoch == now && last.thread != by.thread; };
  for (size_t i = at / unit_; i <= (at + bytes - 1) / unit_; ++i) {
    SharedUnit& unit = units[i];
    if (!writes && unit.write.epoch == 0)
      return fmt::format("{} reads byte {} of shared memory, which nobody has written", name(by), at);
    if (other(unit.write) || (writes && other(unit.read)))
      return fmt::format("{} {} byte {} of shared memory, which another thread {} without __syncthreads between them",
                         name(by), verb(writes), at, verb(other(unit.write)));
    if (writes)
      unit.write = {now, static_cast<uint16_t>(by.thread)};
    else
      note(unit.read, now, by.thread);
  }
  return "";
}

std::string LoopRaces::global_access(LoopThread by, uintptr_t at, size_t bytes, bool writes) {
  const Epoch now = epochs_[by.block];
  for (uintptr_t unit = at / unit_; unit <= (at + bytes - 1) / unit_; ++unit) {
    Page* const known = page_of(unit * unit_ / kPageBytes);
    if (!known) return fmt::format("{} {} what is no memory of the device", name(by), verb(writes));
    Page& page = *known;
    const size_t i = unit % (kPageBytes / unit_);
    Page::Write& write = page.writes[i];
    if (!is_before(write.block, write, by))
      return fmt::format("{} {} what block {} writes, without a wait between them", name(by), verb(writes),
                         write.block);
    Last* const reads = &page.reads[i * blocks_];
    if (!writes) {
      note(reads[by.block], now, by.thread);
      continue;
    }
    for (unsigned b = 0; b < blocks_; ++b)
      if (!is_before(b, reads[b], by))
        return fmt::format("{} writes what block {} reads, without a wait between them", name(by), b);
    write = {{now, static_cast<uint16_t>(by.thread)}, static_cast<uint16_t>(by.block)};
  }
  return "";
}

// Null if it is not the device's.
LoopRaces::Page* LoopRaces::page_of(uintptr_t number) {
  Recent& recent = recent_[number % kRecent];
  if (recent.page && recent.number == number) return recent.page;
  std::unique_ptr<Page>& page = pages_[number];
  if (!page) {
    if (!is_device_memory(reinterpret_cast<const void*>(number * kPageBytes))) return nullptr;
    page = std::make_unique<Page>();
    page->writes.resize(kPageBytes / unit_);
    page->reads.resize(kPageBytes / unit_ * blocks_);
  }
  recent = {number, page.get()};
  return page.get();
}

}  // namespace emulated
