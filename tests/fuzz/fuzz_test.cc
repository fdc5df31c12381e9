// Every harness over its corpus and some hundred mutations of it: no crash, nothing but Errors, and no hang.
//
// Each harness runs in a process of its own, which counts what it has begun, so that a crash names its case and leaves
// its bytes in a file. docs/fuzzing.md says how coverage guides the same harnesses.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>

#include "core/compute/threads.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/mutations.h"
#include "tests/fuzz/support.h"

namespace stepnet::testing::fuzz_test {
namespace {

constexpr int kMutations = 300;
constexpr unsigned kHang = 120;  // seconds of all cases of a harness

// A number that two processes see.
class SharedCount {
 public:
  SharedCount()
      : place_(::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        count_(new (place_) int(0)) {}
  ~SharedCount() { ::munmap(place_, sizeof(int)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  volatile int& value() { return *count_; }

 private:
  void* place_;
  int* count_;
};

// The inputs in their order: the seeds, then mutations of them.
class Cases {
 public:
  explicit Cases(const std::string& kind) : seeds_(seeds_of(kind)) {}
  int size() const { return static_cast<int>(seeds_.size()) + kMutations; }
  const std::vector<Seed>& seeds() const { return seeds_; }
  std::string next() {
    const size_t n = next_++;
    return n < seeds_.size() ? seeds_[n].bytes : mutated(seeds_, random_);
  }

 private:
  std::vector<Seed> seeds_;
  std::mt19937_64 random_{20260101};
  size_t next_ = 0;
};

void run_harness(const Harness& harness, const std::string& input) {
  harness.run(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// In a process of its own.
int run_all(const Harness& harness, Cases cases, SharedCount& begun) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kHang);
    for (int i = 0; i < cases.size(); ++i) {
      begun.value() = i + 1;
      run_harness(harness, cases.next());
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

// Of this process, which removes it; in memory where there is such a place, for the harnesses sync their files.
void make_fuzz_folder() {
  const char* given = std::getenv("TMPDIR");
  const std::string before = given ? given : "";
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  fuzz_folder();
  if (given)
    ::setenv("TMPDIR", before.c_str(), 1);
  else
    ::unsetenv("TMPDIR");
}

class Fuzz : public ::testing::TestWithParam<size_t> {};

TEST_P(Fuzz, SeedsAndMutations) {
  const Harness& harness = harnesses()[GetParam()];
  set_threads(1);  // a process that is forked has no others
  make_fuzz_folder();
  Cases cases(harness.name);
  ASSERT_FALSE(cases.seeds().empty());
  SharedCount begun;
  const int status = run_all(harness, cases, begun);
  if (status == 0) {
    EXPECT_EQ(begun.value(), cases.size());
    return;
  }
  std::string input;
  for (int i = 0; i < begun.value(); ++i) input = cases.next();
  const std::string path = ::testing::TempDir() + "fuzz_" + harness.name;
  std::ofstream(path, std::ios::binary) << input;
  ADD_FAILURE() << "case " << begun.value() << " ended the process with status " << status << "; its bytes are in "
                << path;
}

INSTANTIATE_TEST_SUITE_P(Harnesses, Fuzz, ::testing::Range<size_t>(0, harnesses().size()),
                         [](const auto& info) { return std::string(harnesses()[info.param].name); });

}  // namespace
}  // namespace stepnet::testing::fuzz_test
