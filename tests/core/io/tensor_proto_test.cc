// Tensors whose elements are in raw_data; tensors in fields by type are what the tests of databases save and load.
#include "core/io/tensor_proto.h"

#include <gtest/gtest.h>

#include <cstring>

#include "stepnet/half.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::tensor_proto_test {
namespace {

TensorProto raw_proto(const Tensor& tensor) {
  TensorProto proto;
  for (const int64_t d : tensor.shape()) proto.add_dims(d);
  proto.set_data_type(static_cast<TensorProto::DataType>(tensor.dtype()));
  proto.set_raw_data(std::string(reinterpret_cast<const char*>(tensor.raw()), tensor.bytes()));
  return proto;
}

TEST(RawTensors, OfEveryTypeOfNumbers) {
  for (const Tensor& t : {normal<float>({2, 3}), normal<double>({4}), integers<int32_t>({5}, -9, 9),
                          integers<int64_t>({2, 1}, -9, 9), integers<bool>({3}, 0, 1),
                          Tensor::of<uint8_t>({4}, {0, 1, 128, 255}), normal<float>({0, 2}), normal<float>({})}) {
    const Tensor read = tensor_from_proto(raw_proto(t));
    EXPECT_EQ(read.dtype(), t.dtype());
    EXPECT_EQ(compare(read, t, 0), "") << t.str();
  }
}

TEST(RawTensors, OfSegments) {
  TensorProto proto = raw_proto(Tensor::of<float>({2}, {7, 8}));
  proto.set_dims(0, 5);
  proto.mutable_segment()->set_begin(2);
  proto.mutable_segment()->set_end(4);
  Tensor to = Tensor::zeros(DType::float32, {5});
  copy_segment(proto, read_segment(proto), to);
  EXPECT_EQ(compare(to, Tensor::of<float>({5}, {0, 0, 7, 8, 0}), 0), "");
}

TEST(RawTensors, FloatsAsBfloat16) {
  const float values[] = {1.5F, -3, 0};
  std::string raw;
  for (const float v : values) {
    const bfloat16 half(v);
    raw.append(reinterpret_cast<const char*>(&half.bits), 2);
  }
  TensorProto proto;
  proto.add_dims(3);
  proto.set_data_format(TensorProto::FMT_BFLOAT16);
  proto.set_raw_data(raw);
  EXPECT_EQ(compare(tensor_from_proto(proto), Tensor::of<float>({3}, {1.5F, -3, 0}), 0), "");
}

TEST(RawTensors, BytesThatAreNoBoolsAreTrue) {
  TensorProto proto = raw_proto(integers<bool>({3}, 0, 0));
  proto.set_raw_data(std::string("\x00\x02\xff", 3));
  const Tensor read = tensor_from_proto(proto);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read.raw()[i], std::byte(i > 0 ? 1 : 0));
}

TEST(RawTensors, MistakesAreRefused) {
  const auto error = [](const std::function<void(TensorProto&)>& change) {
    TensorProto proto = raw_proto(Tensor::of<float>({2}, {7, 8}));
    change(proto);
    return error_text([&] { tensor_from_proto(proto); });
  };
  expect_contains(error([](TensorProto& p) { p.set_raw_data("abc"); }),
                  "3 bytes, which is no whole number of elements");
  expect_contains(error([](TensorProto& p) { p.set_raw_data("abcd"); }), "but the record holds 1 values");
  expect_contains(error([](TensorProto& p) { p.add_float_data(1); }), "and in a field of their type as well");
  expect_contains(error([](TensorProto& p) { p.set_data_format(2); }), "data_format 2 is not known");
  expect_contains(error([](TensorProto& p) { p.set_data_type(TensorProto::STRING); }), "raw_data cannot hold strings");
  expect_contains(error([](TensorProto& p) {
                    p.set_data_format(1);
                    p.set_data_type(TensorProto::DOUBLE);
                  }),
                  "is for elements of float, not of double");
  expect_contains(error([](TensorProto& p) {
                    p.set_data_format(1);
                    p.clear_raw_data();
                  }),
                  "needs raw_data");
}

}  // namespace
}  // namespace stepnet::testing::tensor_proto_test
