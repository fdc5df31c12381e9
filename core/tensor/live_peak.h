// LivePeak: the most bytes of the CPU's allocator that are live while one of these is there, or since restart().
//
// It leaves the allocator's own peak to those who reset that. There may be several at a time.
// Threads: what all threads take counts; restart() and peak() belong to the one that made it.
#pragma once

#include <cstdint>

namespace stepnet {

class LivePeak {
 public:
  LivePeak();
  ~LivePeak();
  LivePeak(const LivePeak&) = delete;
  LivePeak& operator=(const LivePeak&) = delete;

  void restart();
  int64_t peak() const;

 private:
  friend class CpuAllocator;
  int64_t bytes_ = 0;  // the allocator's mutex guards it
};

}  // namespace stepnet
