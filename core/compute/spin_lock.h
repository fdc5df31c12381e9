// A lock for some microseconds' work that threads of one parallel region do in turn. Waiting threads stay awake: one
// that slept would be woken on the core of the one that wakes it, and both would share that core from then on.
#pragma once

#include <atomic>
#include <thread>

namespace stepnet {

// Says that the calling thread waits for another one, to a core that has two of them at work.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// For std::lock_guard.
class SpinLock {
 public:
  void lock() {
    for (int spins = 0; locked_.test_and_set(std::memory_order_acquire); ++spins)
      spins < kSpins ? relax() : std::this_thread::yield();  // its holder may be waiting for this core
  }
  void unlock() { locked_.clear(std::memory_order_release); }

 private:
  static constexpr int kSpins = 2000;  // some 50 microseconds
  std::atomic_flag locked_;
};

}  // namespace stepnet
