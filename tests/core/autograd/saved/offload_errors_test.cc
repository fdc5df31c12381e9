// What goes wrong on the disk is an Error that names the file and the operator, and leaves nothing behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "stepnet/offload.h"
#include "tests/core/autograd/offload_files.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::autograd::testing::offload_errors_test {
namespace {

using stepnet::testing::error_text;
using stepnet::testing::expect_contains;
using stepnet::testing::read_all;
using stepnet::testing::TempFolder;
using stepnet::testing::write_all;
namespace fs = std::filesystem;

Variable exp_of(const Variable& v) { return apply("Exp", {v}); }

// For a scope: files cannot grow beyond that.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  sighandler_t handler_;
  rlimit before_{};
};

class TapeOffloadErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    backward(sum_of(exp_of(var({1}))));  // so that what operators keep is there
    before_ = live_bytes();
    ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  }
  void TearDown() override {
    EXPECT_EQ(live_bytes(), before_);
    EXPECT_TRUE(!fs::exists(path()) || fs::is_empty(path()));
    EXPECT_EQ(tape_state().hooks, nullptr);
  }
  std::string path() const { return folder_.file("values"); }
  OffloadOptions options() const {
    OffloadOptions options;
    options.folder = path();
    options.at_least = 0;
    return options;
  }
  // What backward through one saved value says once `damage` has been done to its file.
  std::string text_after(const std::function<void(const std::string& file)>& damage) const {
    const OffloadScope scope(options());
    Variable y = exp_of(var({1, 2}));
    const Variable root = sum_of(y);
    scope.wait();
    y = {};
    const NamelessFile file = nameless_files(path()).at(0);
    damage(file.path);
    const std::string text = error_text([&] { backward(root); });
    expect_contains(text, file.name);
    expect_contains(text, "of ExpGradient, which ran forward at");
    return text;
  }

 private:
  TempFolder folder_;
  int64_t before_ = 0;
};

TEST_F(TapeOffloadErrors, AFileThatIsDamaged) {
  const std::string text = text_after([](const std::string& file) {
    std::string bytes = read_all(file);
    bytes[9] ^= 1;
    write_all(file, bytes);
  });
  expect_contains(text, "is damaged");
}

TEST_F(TapeOffloadErrors, AFileThatIsTooShort) {
  const std::string text = text_after([](const std::string& file) { fs::resize_file(file, 15); });
  expect_contains(text, "was written with 16 bytes, and has 15 now");
}

// Beyond half of the files that may be open, values have files with names.
TEST_F(TapeOffloadErrors, ManyValues) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit limit{64, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  {
    const OffloadScope scope(options());
    Variable y = var({1, 2});
    for (int i = 0; i < 100; ++i) y = apply("Tanh", {y});
    scope.wait();
    EXPECT_LT(nameless_files(path()).size(), 32u);
    EXPECT_GT(std::distance(fs::directory_iterator(path()), {}), 68);
    backward(sum_of(y));
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(TapeOffloadErrors, AFileReadAheadThatIsDamaged) {
  const OffloadScope scope(options());
  Variable y = exp_of(exp_of(var({1, 2})));
  const Variable root = sum_of(y);
  scope.wait();
  y = {};
  for (const NamelessFile& file : nameless_files(path()))
    if (file.name.ends_with("-1")) write_all(file.path, std::string(16, 'x'));
  expect_contains(error_text([&] { backward(root); }), "-1 is damaged");
}

TEST_F(TapeOffloadErrors, ADiskThatIsFull) {
  const Variable x = var({1, 2, 3, 4});
  Variable y = exp_of(x);
  std::string later, lost;
  {
    const OffloadScope scope(options());
    const FullDisk full(8);
    y = exp_of(y);
    scope.wait();
    later = error_text([&] { exp_of(y); });
    const Variable root = sum_of(apply("Negative", {y}));
    y = {};
    lost = error_text([&] { backward(root); });
  }
  expect_contains(later, "cannot write " + path());
  expect_contains(later, "a value of ExpGradient, which ran forward at");
  expect_contains(lost, "cannot write " + path());
  expect_contains(lost, "of ExpGradient, which ran forward at");
}

TEST_F(TapeOffloadErrors, AfterTheLostValueIsGoneTheScopeWorksAgain) {
  const Variable x = var({1, 2, 3, 4});
  const OffloadScope scope(options());
  {
    const FullDisk full(8);
    const Variable y = exp_of(x);
    scope.wait();
  }
  Variable y = exp_of(x);
  const Variable root = sum_of(y);
  scope.wait();
  y = {};
  EXPECT_FALSE(nameless_files(path()).empty());
  backward(root);
}

TEST_F(TapeOffloadErrors, AFolderThatIsGone) {
  const OffloadScope scope(options());
  fs::remove(path());
  const Variable y = exp_of(var({1, 2}));
  scope.wait();
  expect_contains(error_text([&] { exp_of(y); }), "cannot create " + path());
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(TapeOffloadErrors, AFolderThatCannotBeWritten) {
  OffloadOptions where = options();
  where.folder = "/proc/self";  // where nobody can make a file
  expect_contains(error_text([&] { const OffloadScope scope(where); }), "the folder /proc/self is not writable");
}

TEST_F(TapeOffloadErrors, AFolderThatIsAFile) {
  const std::string file = path() + "/file";
  write_all(file, "");
  OffloadOptions where = options();
  where.folder = file;
  expect_contains(error_text([&] { const OffloadScope scope(where); }), file);
  fs::remove(file);
}

TEST_F(TapeOffloadErrors, BadSizes) {
  OffloadOptions where = options();
  where.at_least = -1;
  expect_contains(error_text([&] { const OffloadScope scope(where); }), "cannot be negative");
}

TEST_F(TapeOffloadErrors, WritingBehindTheTapesBack) {
  const Variable x(Tensor::zeros(DType::float64, {1 << 20}), true);
  const OffloadScope scope(options());
  Variable y = exp_of(x);
  y.unchecked_value().mark_written();
  scope.wait();
  const Variable root = sum_of(y);
  if (scope.counters().written == 1) GTEST_SKIP() << "the file was there first";
  expect_contains(error_text([&] { backward(root); }), "behind the tape's back");
}

}  // namespace
}  // namespace stepnet::autograd::testing::offload_errors_test
