// FileRoot, FilePlace and PlaceFolder; files and databases below a root.
#include "stepnet/file_place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/io/db.h"
#include "core/io/files.h"
#include "stepnet/workspace.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::file_place_test {
namespace {

namespace fs = std::filesystem;

class FilePlaceTest : public ::testing::Test {
 protected:
  FilePlaceTest() {
    fs::create_directories(base_.file("root/a/b"));
    fs::create_directories(base_.file("outside/b"));
    write_all(base_.file("root/a/b/x"), "inside");
    write_all(base_.file("outside/b/x"), "outside");
    root_ = std::make_shared<const FileRoot>(base_.file("root"));
  }
  FilePlace place(const std::string& path) const { return {root_, path}; }
  std::string read(const std::string& path) const {
    const FileReader file(place(path));
    return file.text_at(0, file.size());
  }

  TempFolder base_;
  FileRootPtr root_;
};

TEST_F(FilePlaceTest, PathsAreMadeShort) {
  EXPECT_EQ(place("a/b/x").path(), "a/b/x");
  EXPECT_EQ(place("./a//b/./x/").path(), "a/b/x");
  EXPECT_EQ(place("a/../a/b/../b/x").path(), "a/b/x");
  EXPECT_EQ(place("a/..").path(), ".");
  EXPECT_EQ(place("a").str(), base_.file("root/a"));
  EXPECT_EQ(place("a").in_folder("b").with_ending(".new").path(), "a/b.new");
  EXPECT_EQ(read("a/../a/b/x"), "inside");
  EXPECT_EQ(FilePlace("/a/../b").path(), "/a/../b");
}

TEST_F(FilePlaceTest, PathsThatLeaveAreRefused) {
  EXPECT_EQ(error_text([&] { place("a/../../outside/b/x"); }),
            "the path \"a/../../outside/b/x\" leads out of it, but nets may only open files below the folder " +
                base_.file("root") + "\n  fix give the path from that folder on");
  for (const char* path : {"..", "../root/a", "a/../..", "/", "/etc", "//a"}) EXPECT_THROW(place(path), Error) << path;
  EXPECT_EQ(error_text([&] { place(""); }), "the name of a file is empty");
  EXPECT_EQ(error_text([&] { place(std::string("a\0b", 3)); }), "the path \"a\\x00b\" has a zero byte");
  expect_contains(error_text([&] { FileRoot(base_.file("none")); }), "cannot be opened: No such file");
  expect_contains(error_text([&] { FileRoot(base_.file("root/a/b/x")); }), "cannot be opened: Not a directory");
}

TEST_F(FilePlaceTest, ARootWithoutFilesRefusesAll) {
  const auto none = std::make_shared<const FileRoot>();
  EXPECT_EQ(
      error_text([&] { FilePlace(none, "x"); }),
      "the net may not open \"x\": it comes from a file that need not be trusted\n  fix if you trust it, say below "
      "which folder it may open files: --root DIR");
}

TEST_F(FilePlaceTest, TheRootMayBeReachedByALink) {
  fs::create_directory_symlink(base_.file("root"), base_.file("link"));
  root_ = std::make_shared<const FileRoot>(base_.file("link"));
  EXPECT_EQ(read("a/b/x"), "inside");
}

TEST_F(FilePlaceTest, FoldersAreFoundByHandAsByTheSystem) {
  fs::create_directory_symlink("a", base_.file("root/link"));
  fs::create_directory_symlink(base_.file("outside"), base_.file("root/out"));
  for (const auto& open : {open_folder_below, open_folder_by_hand}) {
    const auto reason = [&](const std::string& path) {
      errno = 0;
      const int fd = open(root_->fd(), path);
      if (fd >= 0) ::close(fd);
      return fd >= 0 ? 0 : errno;
    };
    EXPECT_EQ(reason("."), 0);
    EXPECT_EQ(reason("a"), 0);
    EXPECT_EQ(reason("a/b"), 0);
    EXPECT_EQ(reason("link"), ELOOP);
    EXPECT_EQ(reason("link/b"), ELOOP);
    EXPECT_EQ(reason("out/b"), ELOOP);
    EXPECT_EQ(reason("none/b"), ENOENT);
    EXPECT_EQ(reason("a/b/x/y"), ENOTDIR);
    EXPECT_EQ(reason(std::string(300, 'n')), ENAMETOOLONG);
  }
}

// Somebody exchanges a folder for a link while a file is at work in it.
TEST_F(FilePlaceTest, AFolderThatIsExchangedForALinkIsNotFollowed) {
  const PlaceFolder open(place("a/b/new"));
  fs::rename(base_.file("root/a/b"), base_.file("root/was"));
  fs::create_directory_symlink(base_.file("outside/b"), base_.file("root/a/b"));
  const int fd = open.open(O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  ::close(fd);
  EXPECT_TRUE(fs::exists(base_.file("root/was/new")));
  EXPECT_FALSE(fs::exists(base_.file("outside/b/new")));
  expect_contains(error_text([&] { read("a/b/x"); }), "links are not followed");
}

TEST_F(FilePlaceTest, AnExchangedFolderStopsWhatIsWrittenAside) {
  {
    AtomicFile file(place("a/b/new"));
    file.write("text");
    fs::rename(base_.file("root/a/b"), base_.file("root/was"));
    fs::create_directory_symlink(base_.file("outside/b"), base_.file("root/a/b"));
    expect_contains(error_text([&] { file.commit(); }), "links are not followed");
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(base_.file("outside/b")), {}), 1);
}

TEST_F(FilePlaceTest, AFileThatIsExchangedForALinkIsNotFollowed) {
  AtomicFile file(place("a/b/x"));
  file.write("new");
  fs::remove(base_.file("root/a/b/x"));
  fs::create_symlink(base_.file("outside/b/x"), base_.file("root/a/b/x"));
  file.commit();  // takes the link's place
  EXPECT_EQ(read("a/b/x"), "new");
  EXPECT_EQ(read_all(base_.file("outside/b/x")), "outside");
}

TEST_F(FilePlaceTest, FilesAreWrittenInTheRoot) {
  write_file(place("a/new"), "text");
  EXPECT_EQ(read("a/new"), "text");
  const FilePlace log = place("c/d/log");
  make_folders_of(log);
  append_line(log, "one\n");
  append_line(log, "two\n");
  EXPECT_EQ(read("c/d/log"), "one\ntwo\n");
  append_line(log, "three\n", true);
  EXPECT_EQ(read("c/d/log"), "three\n");
}

TEST_F(FilePlaceTest, FoldersAreNotMadeThroughALink) {
  fs::create_directory_symlink(base_.file("outside"), base_.file("root/out"));
  EXPECT_THROW(make_folders_of(place("out/new/x")), Error);
  EXPECT_FALSE(fs::exists(base_.file("outside/new")));
}

TEST_F(FilePlaceTest, DevicesAreNotOpened) {
  if (::mknod(base_.file("root/zero").c_str(), S_IFCHR | 0600, makedev(1, 5)) != 0)
    GTEST_SKIP() << "no device was made";
  expect_contains(error_text([&] { read("zero"); }), "is not a regular file");
  expect_contains(error_text([&] { append_line(place("zero"), "x"); }), "is not a regular file");
}

TEST_F(FilePlaceTest, DatabasesAreReadAndWrittenInTheRoot) {
  for (const char* type : {"minidb", "lmdb"}) {
    const FilePlace at = place(std::string("a/") + type);
    {
      const auto db = open_db(type, at, DbMode::create);
      const auto transaction = db->transaction();
      transaction->put("key", std::string(100'000, 'v'));
      transaction->commit();
    }
    const auto cursor = open_db(type, at, DbMode::read)->cursor();
    ASSERT_TRUE(cursor->valid()) << type;
    EXPECT_EQ(cursor->value().size(), 100'000u) << type;
    EXPECT_TRUE(open_db(type, at.str(), DbMode::read)->cursor()->valid()) << type;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(base_.file("root/a/lmdb")), {}), 1);
}

TEST_F(FilePlaceTest, WorkspacesBelowAConfinedOneAreConfined) {
  Workspace above, below(&above), own(&below);
  EXPECT_EQ(net_file(own, "x", PathStart::as_it_is).str(), "x");
  EXPECT_EQ(net_file(own, "x", PathStart::root_folder).str(), "./x");
  above.confine(root_);
  own.root_folder = "/";
  EXPECT_EQ(net_file(own, "x", PathStart::root_folder).str(), base_.file("root/x"));
  EXPECT_EQ(net_file(own, "x", PathStart::as_it_is).str(), base_.file("root/x"));
}

}  // namespace
}  // namespace stepnet::testing::file_place_test
