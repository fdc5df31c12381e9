// .npy files: what NumPy writes is spelled out byte by byte.
#include "core/io/npy.h"

#include <cstring>

#include "tests/core/errors.h"
#include "tests/core/temp_folder.h"

namespace stepnet::npy_test {
namespace {

using testing::error_text;
using testing::expect_contains;
using testing::read_all;
using testing::TempFolder;
using testing::write_all;

std::string npy(int version, const std::string& header, const std::string& elements) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  const auto length = static_cast<uint32_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return bytes + header + elements;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

class Npy : public ::testing::Test {
 protected:
  Tensor read(const std::string& bytes) {
    write_all(folder_.file("a.npy"), bytes);
    return read_npy(folder_.file("a.npy"));
  }
  std::string error(const std::string& bytes) {
    return error_text([&] { read(bytes); });
  }
  TempFolder folder_;
};

TEST_F(Npy, WhatIsWrittenIsReadBack) {
  const DType types[] = {DType::float32, DType::float64, DType::int32,  DType::int64, DType::boolean,
                         DType::uint8,   DType::int8,    DType::uint16, DType::int16, DType::float16};
  for (const DType dtype : types) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 3}, Shape{4, 0}, Shape{1, 2, 1, 2, 1, 2, 1, 2}}) {
      Tensor t = Tensor::zeros(dtype, shape);
      for (size_t i = 0; i < t.bytes(); i += dtype_size(dtype)) t.raw()[i] = std::byte{1};
      write_npy(folder_.file("b.npy"), t);
      const Tensor back = read_npy(folder_.file("b.npy"));
      EXPECT_EQ(back.str(), t.str());
      EXPECT_TRUE(t.bytes() == 0 || std::memcmp(back.raw(), t.raw(), t.bytes()) == 0);
    }
  }
  EXPECT_EQ(folder_.count(), 1);
}

TEST_F(Npy, BytesAreNumPys) {
  write_npy(folder_.file("b.npy"), Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(117, ' ');
  EXPECT_EQ(read_all(folder_.file("b.npy")), npy(1, header + "\n", bytes_of<float>({1, 2, 3, 4, 5, 6})));
  write_npy(folder_.file("b.npy"), Tensor::of<bool>({1}, {true}));
  expect_contains(read_all(folder_.file("b.npy")), "{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }");
  write_npy(folder_.file("b.npy"), Tensor::scalar<int64_t>(7));
  expect_contains(read_all(folder_.file("b.npy")), "'shape': (), }");
  expect_contains(error_text([&] { write_npy(folder_.file("b.npy"), Tensor::of<std::string>({1}, {"x"})); }),
                  "cannot be written as .npy");
}

TEST_F(Npy, VersionsAndSpellings) {
  const std::string elements = bytes_of<int32_t>({1, 2});
  EXPECT_EQ(read(npy(2, "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n", elements)).str(), "int32[2]");
  EXPECT_EQ(read(npy(3, "{\"shape\":(1,2),\"fortran_order\":False,\"descr\":\"=i4\"}", elements)).str(), "int32[1, 2]");
  EXPECT_EQ(read(npy(1, "{'descr': '<i4', 'fortran_order': True, 'shape': (2L,)}", elements)).str(), "int32[2]");
  EXPECT_EQ(read(npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': ()}", bytes_of<int32_t>({9}))).item<int>(),
            9);
}

TEST_F(Npy, FortranOrderIsTransposed) {
  const Tensor t = read(npy(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3, 2), }",
                            bytes_of<double>({0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11})));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(t.data<double>()[i], i);
}

TEST_F(Npy, FilesThatCannotBeRead) {
  const std::string f4 = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  const std::string two = bytes_of<float>({1, 2});
  EXPECT_EQ(error("hello, world"), folder_.file("a.npy") + " is not a .npy file");
  expect_contains(error(""), "is not a .npy file");
  expect_contains(error(npy(4, f4, two)), "has version 4 of the .npy format");
  expect_contains(error(npy(1, f4, two.substr(1))), "should hold float[2], but has 7 bytes of elements");
  expect_contains(error(npy(1, f4, two + "x")), "but has 9 bytes of elements");
  expect_contains(error(npy(1, f4, two).substr(0, 40)), "ends at byte 40");
  const auto header = [&](const std::string& text) { return error(npy(1, text, two)); };
  expect_contains(header("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }"), "is big-endian");
  expect_contains(header("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }"), "elements of type <c8");
  expect_contains(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"), "several fields");
  expect_contains(header("{'descr': '<f4', 'shape': (2,), }"), "'fortran_order' or 'shape' is missing");
  expect_contains(header("{'descr': '<f4', 'fortran_order': 1, 'shape': (2,)}"), "'False' is due");
  expect_contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}"), "a number is due");
  expect_contains(header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"), "too large");
  expect_contains(header("{'descr': '<f4"), "a text has no end");
  expect_contains(header(""), "'{' is due");
  header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}");
  header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}");
  expect_contains(error(npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\x01\x02")),
                  "has the value 2 where a bool");
}

}  // namespace
}  // namespace stepnet::npy_test
