// ZipFile, on an archive of NumPy's and on damaged ones.
#include "core/io/zip.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/io/npy.h"
#include "tests/core/errors.h"
#include "tests/core/io/zip_bytes.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::zip_test {
namespace {

class Zip : public ::testing::Test {
 protected:
  std::string write(const std::string& bytes) const {
    write_all(folder_.file("a.zip"), bytes);
    return folder_.file("a.zip");
  }
  static std::string content(const ZipFile& zip, const std::string& name) {
    const ByteSourcePtr bytes = zip.open(name);
    return bytes->text_at(0, bytes->size());
  }
  // What opening member "b" of the bytes says.
  std::string error(const std::string& bytes) const {
    return error_text([&] { content(ZipFile(write(bytes)), "b"); });
  }
  TempFolder folder_;
};

TEST_F(Zip, MembersAreRead) {
  const ZipFile zip(write(zip_of({{"a", "first"}, {"b", ""}, {"c", std::string(100'000, 'x'), true}}, "a comment")));
  EXPECT_EQ(zip.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(content(zip, "a"), "first");
  EXPECT_EQ(content(zip, "b"), "");
  EXPECT_EQ(content(zip, "c"), std::string(100'000, 'x'));
  EXPECT_EQ(zip.open("a")->text_at(1, 3), "irs");
  EXPECT_TRUE(ZipFile(write(zip_of({}))).names().empty());
}

TEST_F(Zip, ArraysThatNumPyPacked) {
  const ZipFile zip(write(numpy_archive()));
  const Tensor x = read_npy(NpyFile(zip.open("x.npy"))), y = read_npy(NpyFile(zip.open("y.npy")));
  EXPECT_EQ(x.shape(), Shape({3, 2}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(x.data<float>()[i], static_cast<float>(i));
  ASSERT_EQ(y.shape(), Shape({3}));
  EXPECT_EQ(y.data<int64_t>()[2], 9);
}

TEST_F(Zip, SizesOf64BitsAreRead) {
  const ZipFile zip(write(zip_of({{"a", "first"}, {"b", "second"}}, "", true)));
  EXPECT_EQ(content(zip, "b"), "second");
}

TEST_F(Zip, DamageIsNamed) {
  const std::string good = zip_of({{"a", "first"}, {"b", "second", true}});
  EXPECT_EQ(content(ZipFile(write(good)), "b"), "second");
  expect_contains(error("PK"), "is no zip archive");
  expect_contains(error(std::string(100, 'x')), "is no zip archive");
  expect_contains(error(good.substr(0, good.size() - 1)), "is no zip archive, or its end is missing");
  expect_contains(error(good.substr(1)), "does not fit into it");
  std::string bad = good;
  bad[bad.find("second")] = 'S';
  expect_contains(error(bad), "its checksum is wrong");
  bad = good;
  bad[bad.find("second") - 5] = 7;  // no kind of block
  expect_contains(error(bad), "it cannot be inflated");
  bad = good;
  bad[bad.rfind("PK\1\2") + 24] = 5;
  expect_contains(error(bad), "it holds more than its 5 bytes");
  bad[bad.rfind("PK\1\2") + 24] = 9;
  expect_contains(error(bad), "it holds 6 bytes instead of 9");
  std::memset(bad.data() + bad.rfind("PK\1\2") + 24, 0x7F, 4);
  expect_contains(error(bad), "bytes cannot hold 2139062143");
  bad = good;
  bad[bad.rfind("PK\1\2") + 8] = 1;
  expect_contains(error(bad), "is encrypted");
  bad = good;
  bad[bad.rfind("PK\1\2") + 10] = 12;
  expect_contains(error(bad), "is packed by method 12");
  bad = good;
  std::memset(bad.data() + bad.rfind("PK\1\2") + 20, 0xFF, 4);
  expect_contains(error(bad), "member \"b\" lacks a size");
  bad = good;
  bad[bad.rfind("PK\1\2") + 42] = 1;
  expect_contains(error(bad), "is not where it should be");
  expect_contains(error(zip_of({{"b", "x"}, {"b", "y"}})), "two members \"b\"");
  expect_contains(error(zip_of({{"c", "x"}})), "has no member \"b\"");
}

// Each archive that is cut off anywhere, or has one byte changed, is read or refused.
TEST_F(Zip, NoDamageIsFatal) {
  const std::string good = zip_of({{"a", "first"}, {"b", "second", true}}, "c", true);
  for (size_t i = 0; i < good.size(); ++i)
    for (const int change : {0, 1, 0x80, 0xFF}) {
      std::string bad = good;
      if (change == 0)
        bad.resize(i);
      else
        bad[i] = static_cast<char>(bad[i] ^ change);
      try {
        const ZipFile zip(write(bad));
        for (const std::string& name : zip.names()) content(zip, name);
      } catch (const Error&) {
      }
    }
}

}  // namespace
}  // namespace stepnet::testing::zip_test
