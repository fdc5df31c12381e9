#include "tests/operators/op_test.h"

namespace stepnet::testing::given_tensor_fill_test {
namespace {

template <class T>
Tensor fill(const std::string& type, const std::vector<T>& values, const std::vector<int>& shape,
            std::vector<Argument> more = {}) {
  more.push_back(make_arg("values", values));
  more.push_back(make_arg("shape", shape));
  return run_op_on(make_op(type, {}, {"Y"}, more), {})[0];
}

const std::vector<float> kFloats = {1.5f, -2, 3};
const std::vector<int> kInts = {0, -2, 3};

TEST(GivenTensorFill, HoldsItsValues) {
  EXPECT_EQ(compare(fill("GivenTensorFill", kFloats, {3, 1}), Tensor::of<float>({3, 1}, {1.5f, -2, 3}), 0), "");
  EXPECT_EQ(fill("GivenTensorFill", kFloats, {3}).str(), "float[3]");
  EXPECT_EQ(fill("GivenTensorFill", std::vector<float>{}, {0, 2}).str(), "float[0, 2]");
}

TEST(GivenTensorFill, HonoursDtype) {
  auto typed = [](DType type) { return make_arg("dtype", static_cast<int>(type)); };
  EXPECT_EQ(fill("GivenTensorFill", kFloats, {3}, {typed(DType::float64)}).str(), "double[3]");
  EXPECT_EQ(
      compare(fill("GivenTensorFill", kInts, {3}, {typed(DType::int32)}), Tensor::of<int32_t>({3}, {0, -2, 3}), 0), "");
  EXPECT_NE(error_of([&] { fill("GivenTensorFill", kInts, {3}, {typed(DType::int8)}); }).find("but is int8"),
            std::string::npos);
}

TEST(GivenTensorFill, TypedFormsHaveTheirType) {
  const std::vector<Argument> ignored = {make_arg("dtype", 1)};
  EXPECT_EQ(fill("GivenTensorIntFill", kInts, {3}, ignored).str(), "int32[3]");
  EXPECT_EQ(fill("GivenTensorInt64Fill", kInts, {3}).str(), "int64[3]");
  EXPECT_EQ(compare(fill("GivenTensorInt64Fill", kInts, {3}), Tensor::of<int64_t>({3}, {0, -2, 3}), 0), "");
  EXPECT_EQ(fill("GivenTensorBoolFill", kInts, {3}).str(), "bool[3]");
  EXPECT_EQ(compare(fill("GivenTensorBoolFill", kInts, {3}), Tensor::of<bool>({3}, {false, true, true}), 0), "");
  EXPECT_EQ(fill("GivenTensorDoubleFill", kFloats, {3}).str(), "double[3]");
  const Tensor text = fill("GivenTensorStringFill", std::vector<std::string>{"a", ""}, {2});
  EXPECT_EQ(text.str(), "string[2]");
  EXPECT_EQ(text.data<std::string>()[0], "a");
}

TEST(GivenTensorFill, CountsItsValues) {
  EXPECT_NE(error_of([] {
              fill("GivenTensorFill", kFloats, {2, 2});
            }).find("3 values are given, but shape [2, 2] has 4 elements"),
            std::string::npos);
}

TEST(GivenTensorFill, RefusesValuesOfAnotherKind) {
  EXPECT_NE(error_of([] { fill("GivenTensorFill", kInts, {3}); }).find("\"floats\", but it has ints"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              fill("GivenTensorIntFill", std::vector<int64_t>{1ll << 31}, {1});
            }).find("2147483648 does not fit int32"),
            std::string::npos);
  EXPECT_NE(error_of([] { run_op_on(make_op("GivenTensorFill", {}, {"Y"}), {}); }).find("\"values\""),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::given_tensor_fill_test
