#include "core/compute/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#if defined(__linux__)
#endif
namespace stepnet {
namespace {

thread_local bool serial = false;
std::atomic<int> thread_count{0};

constexpr double kMinimumWork = 2000;  // nanoseconds per part; sharing out costs about 300
constexpr int kMostParts = 1024;
constexpr int kSpins = 2000;  // some 50 microseconds
// Some two milliseconds more, in which others may have the core: as long as a block of timesteps takes that runs on
// one thread alone between two products that are shared out.
constexpr int kYields = 6000;

// A ticket is the number of the job, how many parts it has, and which is the next to be taken.
struct Ticket {
  uint64_t bits;
  static Ticket first(uint64_t job, int parts) { return {job << 32 | static_cast<uint64_t>(parts) << 16}; }
  uint32_t job() const { return static_cast<uint32_t>(bits >> 32); }
  int parts() const { return static_cast<int>(bits >> 16 & 0xffff); }
  int next() const { return static_cast<int>(bits & 0xffff); }
};

// What a worker says of itself. It is written only when it changes: whoever has work to share out reads it.
struct Worker {
  std::atomic<int> thread{0}, cpu{-1};
  std::atomic<bool> asleep{false};

  void note_cpu() {
    const int now = this_cpu();
    if (cpu.load(std::memory_order_relaxed) != now) cpu.store(now, std::memory_order_relaxed);
  }
};

class Team {
 public:
  // Never destroyed: workers may wait in it until the process ends.
  static Team& get() {
    static Team& team = *new Team;
    return team;
  }

  // False if another thread has the team.
  bool try_run(int parts, const FunctionRef<int>& fn) {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    start_workers(parts - 1);
    fn_.store(&fn, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    announce(parts);
    while (take_part()) {
    }
    wait_until_finished(parts);
    busy_.store(false, std::memory_order_release);
    return true;
  }

 private:
  // In the child of a fork there are no workers; it does all parts itself.
  void start_workers(int wanted) {
    while (static_cast<int>(workers_.size()) < std::min(wanted, threads() - 1))
      std::thread([this, &worker = workers_.emplace_back()] { work(worker); }).detach();
    to_move_.reserve(workers_.size());
  }

  // The system likes to wake a thread on the core of the one that woke it, and a worker that yields there runs only
  // when the caller is done: both would share one core while another idles.
  void announce(int parts) {
    const int cpu = this_cpu();
    note_workers_to_move(cpu);
    std::optional<KeptOffCpu> kept_off;
    if (!to_move_.empty()) kept_off.emplace(cpu, to_move_, threads());
    ticket_.store(Ticket::first(++job_, parts).bits, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) > 0) ticket_.notify_all();
  }

  void note_workers_to_move(int cpu) {
    to_move_.clear();
    for (const Worker& worker : workers_)
      if (worker.asleep.load(std::memory_order_relaxed) || worker.cpu.load(std::memory_order_relaxed) == cpu)
        to_move_.push_back(worker.thread.load(std::memory_order_relaxed));
    if (!to_move_.empty() && this_process() != process_) to_move_.clear();  // they are the parent's
  }

  // A part that has been taken keeps the job from ending, so fn_ is read after taking.
  bool take_part() {
    Ticket ticket{ticket_.load(std::memory_order_acquire)};
    do {
      if (ticket.next() >= ticket.parts()) return false;
    } while (!ticket_.compare_exchange_weak(ticket.bits, ticket.bits + 1, std::memory_order_acq_rel));
    const bool before = serial;
    serial = true;
    (*fn_.load(std::memory_order_relaxed))(ticket.next());
    serial = before;
    finished_.fetch_add(1, std::memory_order_release);
    return true;
  }

  void wait_until_finished(int parts) const {
    for (int spins = 0; finished_.load(std::memory_order_acquire) < parts; ++spins) {
      if (spins < kSpins) {
        relax();
      } else {
        std::this_thread::yield();  // the worker may be waiting for this core
      }
    }
  }

  [[noreturn]] void work(Worker& self) {
    self.thread.store(this_thread(), std::memory_order_relaxed);
    while (true) {
      while (take_part()) {
      }
      wait_for_job(Ticket{ticket_.load(std::memory_order_acquire)}, self);
    }
  }

  bool new_job(Ticket old, Worker& self) const {
    self.note_cpu();
    return Ticket{ticket_.load(std::memory_order_relaxed)}.job() != old.job();
  }

  void wait_for_job(Ticket old, Worker& self) {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (new_job(old, self)) return;
      relax();
    }
    for (int yields = 0; yields < kYields; ++yields) {
      if (new_job(old, self)) return;
      std::this_thread::yield();
    }
    self.asleep.store(true, std::memory_order_relaxed);
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    for (uint64_t now = ticket_.load(std::memory_order_seq_cst); Ticket{now}.job() == old.job();
         now = ticket_.load(std::memory_order_seq_cst))
      ticket_.wait(now, std::memory_order_seq_cst);
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
    self.asleep.store(false, std::memory_order_relaxed);
  }

  // Each on a cache line of its own: they are written by different threads.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int> finished_{0};
  alignas(64) std::atomic<int> sleeping_{0};
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<const FunctionRef<int>*> fn_{nullptr};
  uint32_t job_ = 0;
  std::deque<Worker> workers_;  // their places stay theirs as more come
  std::vector<int> to_move_;    // kept, as a run allocates nothing
  const int process_ = this_process();
};

// Whether the thread had the CPU, or had it not, before.
bool let_use(int thread, int cpu, bool allow, int needed) {
  if (thread <= 0) return false;  // 0 would be the calling one
  cpu_set_t cpus;
  if (sched_getaffinity(thread, sizeof(cpus), &cpus) != 0) return false;
  if (CPU_COUNT(&cpus) < needed || (CPU_ISSET(cpu, &cpus) != 0) == allow) return false;
  allow ? CPU_SET(cpu, &cpus) : CPU_CLR(cpu, &cpus);
  return CPU_COUNT(&cpus) > 0 && sched_setaffinity(thread, sizeof(cpus), &cpus) == 0;
}

}  // namespace

void* thread_buffer(ThreadBuffer which, size_t bytes) {
  thread_local std::vector<std::max_align_t> buffers[3];
  std::vector<std::max_align_t>& buffer = buffers[static_cast<size_t>(which)];
  const size_t size = bytes / sizeof(std::max_align_t) + 1;
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

void set_threads(int count) {
  if (count <= 0) count = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  thread_count.store(count, std::memory_order_relaxed);
}

int threads() {
  if (thread_count.load(std::memory_order_relaxed) == 0) set_threads(0);
  return thread_count.load(std::memory_order_relaxed);
}

SerialScope::SerialScope() : before_(serial) { serial = true; }
SerialScope::~SerialScope() { serial = before_; }
bool serial_here() { return serial; }

int parts_for(double nanoseconds) {
  if (serial) return 1;
  return static_cast<int>(std::clamp(nanoseconds / kMinimumWork, 1.0, static_cast<double>(threads())));
}

void parallel_parts(int parts, FunctionRef<int> fn) {
  if (parts > 1 && parts <= kMostParts && !serial && Team::get().try_run(parts, fn)) return;
  for (int part = 0; part < parts; ++part) fn(part);
}

void parallel_for(int64_t n, double cost_per_item, FunctionRef<int64_t, int64_t> fn) {
  if (n <= 0) return;
  const int64_t parts = std::min<int64_t>(parts_for(static_cast<double>(n) * cost_per_item), n);
  if (parts <= 1) {
    fn(0, n);
    return;
  }
  auto part = [&](int i) { fn(n * i / parts, n * (i + 1) / parts); };
  parallel_parts(static_cast<int>(parts), part);
}

#if defined(__linux__)

int this_cpu() { return sched_getcpu(); }
int this_thread() { return gettid(); }
int this_process() { return getpid(); }

KeptOffCpu::KeptOffCpu(int cpu, std::vector<int>& threads, int needed) : cpu_(cpu), threads_(threads) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) threads_.clear();
  std::erase_if(threads_, [&](int thread) { return !let_use(thread, cpu, false, needed); });
}

KeptOffCpu::~KeptOffCpu() {
  for (const int thread : threads_) let_use(thread, cpu_, true, 0);
}

#else

int this_cpu() { return -1; }
int this_thread() { return 0; }
int this_process() { return 0; }
KeptOffCpu::KeptOffCpu(int cpu, std::vector<int>& threads, int /*needed*/) : cpu_(cpu), threads_(threads) {
  threads_.clear();
}
KeptOffCpu::~KeptOffCpu() = default;

#endif

}  // namespace stepnet
