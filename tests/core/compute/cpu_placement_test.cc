#include "core/compute/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>

namespace stepnet::cpu_placement_test {
namespace {

// A thread that does nothing until it is told to end.
class Sleeper {
 public:
  Sleeper() : thread_([this] { sleep(); }) { id_.wait(0); }
  ~Sleeper() {
    end_.test_and_set();
    end_.notify_all();
    thread_.join();
  }
  int id() const { return id_; }

 private:
  void sleep() {
    id_ = this_thread();
    id_.notify_all();
    end_.wait(false);
  }

  std::atomic<int> id_{0};
  std::atomic_flag end_;
  std::thread thread_;
};

cpu_set_t cpus_of(int thread) {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(thread, sizeof(cpus), &cpus), 0);
  return cpus;
}

bool same(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b) != 0; }

TEST(CpuPlacement, KeepsAThreadOffACpuForAWhile) {
  const Sleeper sleeper;
  const cpu_set_t before = cpus_of(sleeper.id());
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this process may use one CPU only";
  const int cpu = this_cpu();
  {
    std::vector<int> threads = {sleeper.id()};
    const KeptOffCpu kept_off(cpu, threads, 2);
    const cpu_set_t during = cpus_of(sleeper.id());
    EXPECT_EQ(CPU_COUNT(&during), CPU_COUNT(&before) - 1);
    EXPECT_FALSE(CPU_ISSET(cpu, &during));
  }
  EXPECT_TRUE(same(cpus_of(sleeper.id()), before));
}

TEST(CpuPlacement, LeavesThreadsAloneThatNeedAllTheirCpus) {
  const Sleeper sleeper;
  const cpu_set_t before = cpus_of(sleeper.id());
  std::vector<int> threads = {sleeper.id()};
  const KeptOffCpu kept_off(this_cpu(), threads, CPU_COUNT(&before) + 1);
  EXPECT_TRUE(same(cpus_of(sleeper.id()), before));
}

TEST(CpuPlacement, ForgivesThreadsAndCpusThatAreNone) {
  const cpu_set_t before = cpus_of(0);
  std::vector<int> none = {0, -1}, a = {this_thread()}, b = {this_thread()};
  const KeptOffCpu no_threads(this_cpu(), none, 1);
  const KeptOffCpu no_cpu(-1, a, 1);
  const KeptOffCpu far_cpu(CPU_SETSIZE, b, 1);
  EXPECT_TRUE(same(cpus_of(0), before));
}

TEST(SpinLock, LetsOneThreadInAtATime) {
  constexpr int kTimes = 20'000;
  SpinLock lock;
  int64_t count = 0;
  auto count_up = [&] {
    for (int i = 0; i < kTimes; ++i) {
      const std::lock_guard held(lock);
      ++count;
    }
  };
  std::thread other(count_up);
  count_up();
  other.join();
  EXPECT_EQ(count, 2 * kTimes);
}

}  // namespace
}  // namespace stepnet::cpu_placement_test

#endif
