// Finds out whether threads of a kernel's blocks touch memory that nothing orders: whatever order they happen to run
// in, a missing wait is seen.
//
// An access comes before another one of its block if it is the same thread's, or if __syncthreads lies between them;
// and before one of another block if __syncthreads, a release, an acquire of the same counter that has seen it, and
// __syncthreads or the acquiring thread itself lie between them, in this order, or several such steps. A thread's own
// accesses behind the last __syncthreads are not taken for released, though CUDA's rules would do so.
//
// Of two accesses that nothing orders, of which one writes, the second is an error; so is a read of shared memory that
// nobody has written, and an access to shared memory that is not the block's.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace emulated {

// A thread of a block.
struct LoopThread {
  unsigned block = 0, thread = 0;
};

class LoopRaces {
 public:
  // Shared memory of block b: so many bytes at rooms + b * stride. Accesses are to multiples of `unit` bytes.
  LoopRaces(unsigned blocks, unsigned threads, const char* rooms, size_t room_stride, size_t room_bytes, size_t unit);

  // "" or what is wrong.
  std::string read(LoopThread by, const void* at, size_t bytes) { return access(by, at, bytes, false); }
  std::string write(LoopThread by, const void* at, size_t bytes) { return access(by, at, bytes, true); }
  // All threads of the block have come to it.
  void synchronize(unsigned block);
  void release(LoopThread by, const void* counter);
  void acquire(LoopThread by, const void* counter);

 private:
  using Epoch = uint32_t;            // of a block: how often it has synchronized, from 1 on
  using Known = std::vector<Epoch>;  // by block: what was done in epochs before these has been seen
  static constexpr uint16_t kSeveral = 0xffff;

  struct Last {
    Epoch epoch = 0;  // none: 0
    uint16_t thread = 0;
  };
  struct SharedUnit {
    Last write, read;
  };
  // A page of global memory: per unit the last write, and the last reads of each block.
  struct Page {
    struct Write : Last {
      uint16_t block = 0;
    };
    std::vector<Write> writes;
    std::vector<Last> reads;
  };

  std::string access(LoopThread by, const void* at, size_t bytes, bool writes);
  std::string shared_access(LoopThread by, size_t at, size_t bytes, bool writes);
  std::string global_access(LoopThread by, uintptr_t at, size_t bytes, bool writes);
  Page* page_of(uintptr_t number);
  const Known& known_by(LoopThread by) const;
  bool is_before(unsigned block, Last last, LoopThread by) const;
  static void note(Last& last, Epoch epoch, unsigned thread);

  unsigned blocks_, threads_;
  const char* rooms_;
  size_t room_stride_, room_bytes_, unit_;
  std::vector<Epoch> epochs_;                                // of the blocks
  std::vector<Known> known_;                                 // by the blocks' threads since they have last synchronized
  std::map<std::pair<unsigned, unsigned>, Known> acquired_;  // by a thread since then
  std::map<const void*, Known> released_;                    // by counter
  std::vector<SharedUnit> shared_;                           // of all blocks
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  struct Recent {
    uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::vector<Recent> recent_;
};

}  // namespace emulated
