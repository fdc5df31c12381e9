// A folder that one writer has: until it ends, however that happens, and no longer.
#include "core/io/folder_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::folder_lock_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::TempFolder;

TEST(FolderLock, OneAtATime) {
  const TempFolder folder;
  std::optional<FolderLock> first(std::in_place, folder.file("lock"));
  EXPECT_EQ(first->note(), "");
  EXPECT_EQ(error_text([&] { FolderLock second(folder.file("lock")); }),
            fmt::format("another run, process {0}, is writing to the folder \"{1}\"\n  fix wait for its end, stop it "
                        "(kill {0} lets it save first), or give another folder",
                        ::getpid(), folder.path()));
  first.reset();
  EXPECT_EQ(folder.count(), 0);
  first.emplace(folder.file("lock"));
  expect_contains(error_text([&] { FolderLock second(folder.file("lock")); }), "another run");
}

TEST(FolderLock, AFileWithoutALockIsNone) {
  const TempFolder folder;
  testing::write_all(folder.file("lock"), "1\n");
  { const FolderLock lock(folder.file("lock")); }
  EXPECT_EQ(folder.count(), 0);
}

TEST(FolderLock, GoesWithItsProcess) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.file("lock"));
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_contains(error_text([&] { FolderLock lock(folder.file("lock")); }), fmt::format("process {},", child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  { const FolderLock lock(folder.file("lock")); }
  EXPECT_EQ(folder.count(), 0);
}

TEST(FolderLock, AFolderThatIsNone) {
  const TempFolder folder;
  expect_contains(error_text([&] { FolderLock lock(folder.file("none") + "/lock"); }),
                  "none/lock for writing: No such file or directory");
}

}  // namespace
}  // namespace stepnet::folder_lock_test
