// Threads inside one operator: a team that shares its work, the CPUs that threads run on, and a lock.
//
// A team of threads() - 1 workers and the calling thread share the parts of one piece of work at a time. Workers wait
// actively for the next piece for some microseconds, then sleep. Whoever is free takes the next part, so that on a busy
// machine nobody waits for a worker that has not begun; which part is done by whom never matters. Parts are fixed,
// equal, contiguous ranges, so results depend only on the thread count.
//
// Only one thread at a time has the team: work from any other thread (prefetch, concurrent substeps), and from inside
// of a part, is done by that thread alone, in the same parts.
// Threads: set_threads is called at start; all others may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace stepnet {

// Something to call while a call lasts. It refers to what it was made from, so making it allocates nothing.
template <class... A>
class FunctionRef {
 public:
  template <class Fn>
  requires(!std::is_same_v<std::remove_cvref_t<Fn>, FunctionRef> && std::is_invocable_v<Fn&, A...>)
      FunctionRef(Fn&& fn)  // NOLINT(google-explicit-constructor, bugprone-forwarding-reference-overload)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(fn)))),
        call_([](void* object, A... args) { (*static_cast<std::add_pointer_t<Fn>>(object))(args...); }) {}
  void operator()(A... args) const { call_(object_, args...); }

 private:
  void* object_;
  void (*call_)(void*, A...);
};

void set_threads(int threads);  // 0: one per core that this process may use
int threads();

// Makes all work of this thread run serially, and in one part, while alive.
class SerialScope {
 public:
  SerialScope();
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  bool before_;
};
bool serial_here();

// Into how many parts work of so many nanoseconds is worth dividing here: 1 to threads().
int parts_for(double nanoseconds);

// Calls fn(0) ... fn(parts - 1), each once, and returns when all have returned. fn must not throw.
void parallel_parts(int parts, FunctionRef<int> fn);

// Calls fn(begin, end) over a partition of [0, n). One call if n * cost_per_item (about nanoseconds) is too little work
// to be shared out. fn must not throw.
void parallel_for(int64_t n, double cost_per_item, FunctionRef<int64_t, int64_t> fn);

// Memory of the calling thread for what a kernel works on, which stays for the thread's next kernel. Kernels that are
// at work at the same time on one thread, because one calls the other, take different ones. Its bytes are anything.
enum class ThreadBuffer { line, lines, product };
void* thread_buffer(ThreadBuffer which, size_t bytes);
template <class T>
std::span<T> thread_buffer(ThreadBuffer which, size_t size) {
  return {static_cast<T*>(thread_buffer(which, size * sizeof(T))), size};
}

// The CPU that the calling thread runs on, or -1 where the system does not say.
int this_cpu();

// The calling thread, as KeptOffCpu knows it, and its process.
int this_thread();
int this_process();

// While it lives, `threads` of this process run on other CPUs than `cpu`, and those that waited for it have been moved.
// Nothing happens where the system does not allow it, or where a thread may use fewer than `needed` CPUs. Allocates
// nothing: what it leaves in `threads` are those that lost the CPU and get it back.
class KeptOffCpu {
 public:
  KeptOffCpu(int cpu, std::vector<int>& threads, int needed);
  ~KeptOffCpu();
  KeptOffCpu(const KeptOffCpu&) = delete;
  KeptOffCpu& operator=(const KeptOffCpu&) = delete;

 private:
  int cpu_;
  std::vector<int>& threads_;
};

// Says that the calling thread waits for another one, to a core that has two of them at work.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// A lock for some microseconds' work that threads of one parallel region do in turn, for std::lock_guard. Waiting
// threads stay awake: one that slept would be woken on the core of the one that wakes it, and both would share that
// core from then on.
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
