#include <limits>

#include "stepnet/half.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::cast_test {
namespace {

template <class T>
Tensor cast(const Tensor& x, T to) {
  return run_op_on(make_op("Cast", {"X"}, {"Y"}, {make_arg("to", to)}), {{"X", x}})[0];
}

TEST(Cast, ConvertsBetweenAllTypes) {
  const DType types[] = {DType::float32, DType::float64, DType::int32, DType::int64,   DType::boolean, DType::uint8,
                         DType::int8,    DType::uint16,  DType::int16, DType::float16, DType::bfloat16};
  const Tensor x = Tensor::of<float>({2, 2}, {0, 1, 1, 0});
  for (const DType from : types)
    for (const DType to : types) {
      const Tensor y = cast(cast(x, static_cast<int>(from)), static_cast<int>(to));
      EXPECT_EQ(y.dtype(), to);
      EXPECT_EQ(compare(is_floating(to) ? cast(y, "FLOAT") : y, x, 0), "")
          << dtype_name(from) << " to " << dtype_name(to);
    }
  EXPECT_EQ(cast(normal<float>({0, 3}), "INT32").str(), "int32[0, 3]");
}

TEST(Cast, TruncatesAndSaturates) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::of<float>({6}, {1.9f, -1.9f, 3e9f, -inf, inf, std::numeric_limits<float>::quiet_NaN()});
  const int32_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(compare(cast(x, "int32"), Tensor::of<int32_t>({6}, {1, -1, high, low, high, 0}), 0), "");
  EXPECT_EQ(compare(cast(x, "bool"), Tensor::of<bool>({6}, {true, true, true, true, true, true}), 0), "");
  EXPECT_EQ(cast(x, "INT64").data<int64_t>()[4], std::numeric_limits<int64_t>::max());
}

// The values of the types' definitions, ties to even; through float from what is longer.
TEST(Cast, RoundsToHalfTypes) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::of<float>({5}, {1 + 0x1p-8f, 1 + 0x1p-7f + 0x1p-8f, 65519, 65520, -1e30f});
  const Tensor b = Tensor::of<float>({5}, {1, 1 + 0x1p-6f, 65536, 65536, -1.00025555e30f});
  const Tensor h = Tensor::of<float>({5}, {1 + 0x1p-8f, 1 + 0x1p-7f + 0x1p-8f, 65504, inf, -inf});
  EXPECT_EQ(cast(x, "bfloat16").str(), "bfloat16[5]");
  EXPECT_EQ(compare(cast(cast(x, "BFLOAT16"), 1), b, 1e-6), "");
  EXPECT_EQ(compare(cast(cast(x, 12), 1), h, 0), "");
  EXPECT_EQ(compare(cast(cast(Tensor::of<double>({2}, {0.1, -3}), "float16"), "double"),
                    Tensor::of<double>({2}, {0.0999755859375, -3}), 0),
            "");
  EXPECT_EQ(compare(cast(cast(Tensor::of<int32_t>({2}, {70000, -7}), "float16"), "int32"),
                    Tensor::of<int32_t>({2}, {std::numeric_limits<int32_t>::max(), -7}), 0),
            "");
}

// Many at a time, in all lengths: each element by itself is what stepnet/half.h says.
TEST(Cast, ManyHalvesAreCastAsOne) {
  Tensor x = normal<float>({1000}, 3, 0, 1e-4);  // float16 has subnormals there
  x.data<float>()[7] = 65520;
  x.data<float>()[8] = -65519.9F;
  x.data<float>()[9] = 0x1p-25F;
  x.data<float>()[10] = 0x1.8p-25F;
  for (const int64_t size : {1, 7, 8, 9, 31, 1000}) {
    const Tensor all = cast(x.rows(0, size).clone(), "FLOAT16"), back = cast(all, "FLOAT");
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_EQ(all.data<float16>()[i].bits, float16(x.data<float>()[i]).bits) << i;
      EXPECT_EQ(back.data<float>()[i], float{all.data<float16>()[i]}) << i;
    }
  }
}

TEST(Cast, Gradient) {
  const Feeds feeds = {{"X", normal<double>({2, 3})}};
  EXPECT_EQ(check_gradient(make_op("Cast", {"X"}, {"Y"}, {make_arg("to", 13)}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(make_op("Cast", {"X"}, {"Y"}, {make_arg("to", "double"), make_arg("from_type", 13)}), feeds,
                           {"X"}),
            "");
}

TEST(CastLike, TakesTheTypeOfTheOther) {
  const Feeds feeds = {{"X", normal<double>({2, 3})}, {"L", integers<float>({1}, 0, 1)}};
  const Tensor y = run_op_on(make_op("CastLike", {"X", "L"}, {"Y"}), feeds)[0];
  EXPECT_EQ(y.str(), "float[2, 3]");
  EXPECT_EQ(compare(y, feeds[0].second, 1e-6), "");
  const Feeds doubles = {{"X", normal<double>({2, 3})}, {"L", normal<double>({1})}};
  EXPECT_EQ(check_gradient(make_op("CastLike", {"X", "L"}, {"Y"}), doubles, {"X"}), "");
}

TEST(Cast, RefusesTypesItHasNot) {
  const Tensor x = normal<float>({2});
  EXPECT_NE(error_of([&] { cast(x, "STRING"); }).find("is string, to which nothing can be cast"), std::string::npos);
  EXPECT_NE(error_of([&] { cast(x, "flaot"); }).find("\"flaot\" is not a data type"), std::string::npos);
  EXPECT_NE(error_of([&] { cast(x, 1.0f); }).find("must be the number (i) or the name (s)"), std::string::npos);
  EXPECT_NE(error_of([&] { cast(Tensor::of<std::string>({1}, {"a"}), 1); }).find("string cannot be cast"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::cast_test
