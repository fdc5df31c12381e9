// FileReader and AtomicFile.
#include <sys/stat.h>

#include "core/io/files.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::files_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::read_all;
using testing::TempFolder;
using testing::write_all;

TEST(FileReader, ReadsWithinTheFile) {
  const TempFolder folder;
  write_all(folder.file("a"), "0123456789");
  const FileReader reader(folder.file("a"));
  EXPECT_EQ(reader.size(), 10u);
  EXPECT_EQ(reader.text_at(3, 4), "3456");
  EXPECT_EQ(reader.text_at(10, 0), "");
  EXPECT_EQ(reader.value_at<char>(9), '9');
  expect_contains(error_text([&] { reader.text_at(8, 3); }), "ends at byte 10, but 3 bytes are needed from byte 8 on");
  expect_contains(error_text([&] { reader.text_at(11, 0); }), "ends at byte 10");
  expect_contains(error_text([&] { reader.text_at(1, ~size_t{0}); }), "ends at byte 10");
}

TEST(FileReader, RefusesWhatIsNoFile) {
  const TempFolder folder;
  expect_contains(error_text([&] { FileReader(folder.file("none")); }), "No such file or directory");
  expect_contains(error_text([&] { FileReader reader(folder.path()); }), "is not a regular file");
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  expect_contains(error_text([&] { FileReader(folder.file("pipe")); }), "is not a regular file");
}

TEST(AtomicFile, IsThereWholeOrNotAtAll) {
  const TempFolder folder;
  const std::string path = folder.file("a");
  {
    AtomicFile file(path);
    file.write("half");
    EXPECT_EQ(folder.count(), 1);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(folder.count(), 0);
  write_file(path, "first");
  EXPECT_EQ(read_all(path), "first");
  {
    AtomicFile file(path);
    file.write("half");
  }
  EXPECT_EQ(read_all(path), "first");
  write_file(path, "second");
  EXPECT_EQ(read_all(path), "second");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, SaysWhatIsWrongWithTheTarget) {
  const TempFolder folder;
  expect_contains(error_text([&] { AtomicFile(folder.file("none/a")); }), "No such file or directory");
  write_all(folder.file("file"), "x");
  expect_contains(error_text([&] { AtomicFile(folder.file("file/a")); }), "is not a folder");
  expect_contains(error_text([&] { AtomicFile file(folder.path()); }), "exists and is not a regular file");
  expect_contains(error_text([&] { AtomicFile(""); }), "the file name is empty");
}

TEST(FilePlace, WhatTheSystemCannotTellIsNoMissingFile) {
  const TempFolder folder;
  struct stat found {};
  EXPECT_TRUE(look_at(folder.path(), found));
  EXPECT_FALSE(look_at(folder.file("none"), found));
  EXPECT_FALSE(look_at(folder.file("none/none"), found));
  const std::string long_name(300, 'x');
  expect_contains(error_text([&] { look_at(folder.file(long_name), found); }), "xxx: File name too long");
}

TEST(FilePlace, FolderOfAPath) {
  EXPECT_EQ(FilePlace("a").folder().path(), ".");
  EXPECT_EQ(FilePlace("/a").folder().path(), "/");
  EXPECT_EQ(FilePlace("a/b/").folder().path(), "a");
  EXPECT_EQ(FilePlace("a/b/c").folder().path(), "a/b");
}

TEST(RenameIntoPlace, ReplacesOnlyIfTold) {
  const TempFolder folder;
  write_all(folder.file("old"), "old");
  write_all(folder.file("new"), "new");
  expect_contains(error_text([&] { rename_into_place(folder.file("new"), folder.file("old"), IfExists::fail); }),
                  "already exists");
  EXPECT_EQ(read_all(folder.file("old")), "old");
  rename_into_place(folder.file("new"), folder.file("old"), IfExists::replace);
  EXPECT_EQ(read_all(folder.file("old")), "new");
  EXPECT_EQ(folder.count(), 1);
}

}  // namespace
}  // namespace stepnet::files_test
