#include "core/data/column.h"

#include <gtest/gtest.h>

#include "core/io/npy.h"
#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::testing::column_test {
namespace {

class Columns : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  static std::vector<NamedColumn> open(const std::string& text) { return open_columns(text); }
  TempFolder folder_;
};

TEST_F(Columns, OfAnArray) {
  write_npy(path("x.npy"), Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  const std::vector<NamedColumn> columns = open("x=" + path("x.npy"));
  ASSERT_EQ(columns.size(), 1);
  EXPECT_EQ(columns[0].name, "x");
  EXPECT_EQ(columns[0].column->samples(), 2);
  EXPECT_EQ(columns[0].column->shape(), Shape({3}));
  float row[3];
  columns[0].column->read(1, 1, reinterpret_cast<std::byte*>(row));
  EXPECT_EQ(row[0], 4);
  EXPECT_EQ(row[2], 6);
}

TEST_F(Columns, OfATable) {
  write_all(path("t.csv"), "a,b,c\n1,2.5,3\n4,5,6\n");
  const std::vector<NamedColumn> all = open(path("t.csv"));
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[2].name, "c");
  EXPECT_EQ(all[2].column->dtype(), DType::float64);
  EXPECT_EQ(all[2].column->shape().rank(), 0);
  const std::vector<NamedColumn> two = open("x=" + path("t.csv") + ":c,b");
  ASSERT_EQ(two.size(), 1);
  EXPECT_EQ(two[0].column->shape(), Shape({2}));
  double row[2];
  two[0].column->read(0, 1, reinterpret_cast<std::byte*>(row));
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 2.5);
}

TEST_F(Columns, WhatCannotBeReadIsRefused) {
  const auto has = [](const std::string& text, const std::string& part) {
    return error_text([&] { open(text); }).find(part) != std::string::npos;
  };
  write_all(path("t.csv"), "abc,b\n1,2\n");
  write_npy(path("one.npy"), Tensor::of<float>({}, {1}));
  write_all(path("short.npy"), "\x93NUMPY");
  EXPECT_TRUE(has("x=" + path("t.csv") + ":abd", "no column \"abd\". Did you mean \"abc\"?"));
  EXPECT_TRUE(has("x=" + path("t.csv"), "NAME=FILE.npy"));
  EXPECT_TRUE(has(path("t.csv") + ":abc", "NAME=FILE.npy"));
  EXPECT_TRUE(has(path("one.npy"), "NAME=FILE.npy"));
  EXPECT_TRUE(has("x=" + path("one.npy"), "its first dimension must count samples"));
  EXPECT_TRUE(has("x=" + path("short.npy"), "is not a .npy file"));
  EXPECT_TRUE(has("x=" + path("no.npy"), "no.npy"));
  std::string fortran = read_all(path("one.npy"));
  write_npy(path("m.npy"), Tensor::of<float>({2, 2}, {1, 2, 3, 4}));
  fortran = read_all(path("m.npy"));
  fortran.replace(fortran.find("False"), 5, "True ");
  write_all(path("f.npy"), fortran);
  EXPECT_TRUE(has("x=" + path("f.npy"), "numpy.ascontiguousarray"));
}

TEST_F(Columns, FingerprintsTellDataApart) {
  const auto of = [&](float last) {
    write_npy(path("x.npy"), Tensor::of<float>({3}, {1, 2, last}));
    return fingerprint_of(open("x=" + path("x.npy")));
  };
  const std::string first = of(3);
  EXPECT_EQ(of(3), first);
  EXPECT_NE(of(4), first);
  EXPECT_NE(first.find("x: 3 samples of float"), std::string::npos) << first;
}

}  // namespace
}  // namespace stepnet::testing::column_test
