// What is left of the machine's memory, by files as systems write them, and by the limit of this process.
#include "core/tensor/machine_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "stepnet/device.h"
#include "stepnet/tensor.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::machine_memory_test {
namespace {

constexpr int64_t kGigabyte = int64_t{1} << 30;

class MachineMemory : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::string file = folder_.file(path);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << text;
  }
  MemoryLeft left() { return memory_left(folder_.path()); }

  testing::TempFolder folder_;
};

TEST_F(MachineMemory, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(left().machine, INT64_MAX);
  EXPECT_EQ(left().group, INT64_MAX);
}

TEST_F(MachineMemory, IsWhatTheSystemHasAvailable) {
  write("proc/meminfo", "MemTotal:       32000000 kB\nMemFree:          100000 kB\nMemAvailable:    2000000 kB\n");
  EXPECT_EQ(left().machine, int64_t{2000000} * 1024);
}

TEST_F(MachineMemory, IsWithinGroupsOfTheSecondVersion) {
  write("proc/self/cgroup", "0::/pods/one/box\n");
  write("sys/fs/cgroup/pods/one/box/memory.max", "max\n");
  EXPECT_EQ(left().group, INT64_MAX);
  write("sys/fs/cgroup/pods/memory.max", "8000000000\n");
  write("sys/fs/cgroup/pods/memory.current", "5000000000\n");
  EXPECT_EQ(left().group, 3000000000);
  write("sys/fs/cgroup/pods/one/box/memory.max", "2000000000\n");
  write("sys/fs/cgroup/pods/one/box/memory.current", "1500000000\n");
  EXPECT_EQ(left().group, 500000000);
  write("sys/fs/cgroup/pods/one/box/memory.stat", "anon 1\ninactive_file 400000000\nactive_file 7\n");
  EXPECT_EQ(left().group, 900000000);  // files that were read can be read again
  EXPECT_EQ(most_memory(folder_.path()), 2000000000);
}

TEST_F(MachineMemory, IsWithinGroupsOfTheFirstVersion) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/job\n1:cpu:/other\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "990000000\n");
  EXPECT_EQ(left().group, 10000000);
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000004096\n");
  EXPECT_EQ(left().group, 0);
}

// Inside of a container the path may be one of the host's.
TEST_F(MachineMemory, IsWithinTheGroupAtTheTopIfTheOwnOneIsNotShown) {
  write("proc/self/cgroup", "0::/host/box\n");
  write("sys/fs/cgroup/memory.max", "700\n");
  write("sys/fs/cgroup/memory.current", "300\n");
  EXPECT_EQ(left().group, 400);
}

class AddressSpace {
 public:
  explicit AddressSpace(int64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    statm >> pages;
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGE_SIZE) + more);
    is_set_ = setrlimit(RLIMIT_AS, &limit) == 0;
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  bool is_set() const { return is_set_; }

 private:
  rlimit before_{};
  bool is_set_ = false;
};

TEST_F(MachineMemory, IsWithinTheAddressSpaceOfTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more addresses than can be limited";
#endif
  const AddressSpace limit(kGigabyte);
  ASSERT_TRUE(limit.is_set());
  EXPECT_LE(memory_left().least(), kGigabyte);
  rlimit now{};
  getrlimit(RLIMIT_AS, &now);
  EXPECT_LE(most_memory(), static_cast<int64_t>(now.rlim_cur));
}

TEST_F(MachineMemory, IsAllThatMayBeAskedFor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more addresses than can be limited";
#endif
  const AddressSpace limit(kGigabyte);
  ASSERT_TRUE(limit.is_set());
  EXPECT_LE(cpu_memory_limit() - allocator(Device{}).counters().live, kGigabyte + (int64_t{256} << 20));
  const std::string text = testing::error_text([] { Tensor::empty(DType::uint8, {2 * kGigabyte}); });
  testing::expect_contains(text, "out of memory: 2147483648 bytes were asked for");
}

}  // namespace
}  // namespace stepnet::machine_memory_test
