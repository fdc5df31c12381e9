#include "tests/operators/op_test.h"

namespace stepnet::testing::reshape_test {
namespace {

Argument to(const std::vector<int>& shape) { return make_arg("shape", shape); }

std::string reshaped(const Shape& from, const std::vector<int>& shape) {
  const Tensor x = normal<float>(from);
  const auto out = run_op_on(make_op("Reshape", {"X"}, {"Y", "old"}, {to(shape)}), {{"X", x}});
  EXPECT_EQ(compare(out[0], x.reshaped(out[0].shape()), 0), "");
  EXPECT_EQ(out[1].str(), fmt::format("int64[{}]", from.rank()));
  for (int i = 0; i < from.rank(); ++i) EXPECT_EQ(out[1].data<int64_t>()[i], from[i]);
  return out[0].shape().str();
}

TEST(Reshape, ResolvesZeroAndMinusOne) {
  EXPECT_EQ(reshaped({2, 3, 4}, {6, 4}), "[6, 4]");
  EXPECT_EQ(reshaped({2, 3, 4}, {0, -1}), "[2, 12]");
  EXPECT_EQ(reshaped({2, 3, 4}, {-1, 0, 2}), "[4, 3, 2]");
  EXPECT_EQ(reshaped({1}, {}), "[]");
  EXPECT_EQ(reshaped({}, {1, 1}), "[1, 1]");
  EXPECT_EQ(reshaped({2, 0}, {-1, 3}), "[0, 3]");
}

TEST(Reshape, TakesTheShapeAsInput) {
  const Tensor x = normal<float>({2, 3});
  const auto out =
      run_op_on(make_op("Reshape", {"X", "S"}, {"Y", "old"}), {{"X", x}, {"S", Tensor::of<int32_t>({2}, {-1, 1})}});
  EXPECT_EQ(compare(out[0], x.reshaped({6, 1}), 0), "");
  EXPECT_EQ(compare(out[1], Tensor::of<int32_t>({2}, {2, 3}), 0), "");
  EXPECT_EQ(out[1].dtype(), DType::int32);
}

TEST(Reshape, WorksInPlaceAndOnStrings) {
  const Tensor x = normal<float>({2, 3});
  const auto out = run_op_on(make_op("Reshape", {"X"}, {"X", "old"}, {to({3, 2})}), {{"X", x}});
  EXPECT_EQ(compare(out[0], x.reshaped({3, 2}), 0), "");
  EXPECT_EQ(compare(out[1], Tensor::of<int64_t>({2}, {2, 3}), 0), "");
  const Tensor text = Tensor::of<std::string>({2}, {"a", "b"});
  const auto strings = run_op_on(make_op("Reshape", {"X"}, {"Y"}, {to({2, 1})}), {{"X", text}});
  EXPECT_EQ(strings[0].data<std::string>()[1], "b");
}

TEST(Reshape, Gradient) {
  EXPECT_EQ(
      check_gradient(make_op("Reshape", {"X"}, {"Y", "old"}, {to({3, -1})}), {{"X", normal<double>({2, 3})}}, {"X"}),
      "");
  EXPECT_EQ(check_gradient(make_op("Reshape", {"X"}, {"X", "old"}, {to({-1})}), {{"X", normal<double>({2, 3})}}, {"X"}),
            "");
  EXPECT_EQ(check_gradient(make_op("Reshape", {"X", "S"}, {"Y", "old"}),
                           {{"X", normal<double>({2, 0})}, {"S", Tensor::of<int64_t>({1}, {-1})}}, {"X"}),
            "");
}

TEST(Reshape, GradientWithoutOldShape) {
  EXPECT_EQ(check_gradient(make_op("Reshape", {"X"}, {"Y"}, {to({3, 2})}), {{"X", normal<double>({2, 3})}}, {"X"}), "");
  EXPECT_NE(error_of([] {
              check_gradient(make_op("Reshape", {"X"}, {"X"}, {to({3, 2})}), {{"X", normal<double>({2, 3})}}, {"X"});
            }).find("give Reshape its second output"),
            std::string::npos);
}

TEST(Reshape, RefusesShapesThatDoNotFit) {
  auto error = [](const std::vector<int>& shape) {
    return error_of([&] { run_op_on(make_op("Reshape", {"X"}, {"Y"}, {to(shape)}), {{"X", normal<float>({2, 3})}}); });
  };
  EXPECT_NE(error({2, 2}).find("shape [2, 3] has 6 elements, which do not fit shape [2, 2] of 4"), std::string::npos);
  EXPECT_NE(error({-1, 4}).find("do not divide by 4"), std::string::npos);
  EXPECT_NE(error({-1, -1}).find("more than one -1"), std::string::npos);
  EXPECT_NE(error({2, 3, 0}).find("copies dimension 2"), std::string::npos);
  EXPECT_NE(error({-2, 3}).find("only -1 may be negative"), std::string::npos);
  const Feeds large = {{"X", normal<float>({0, int64_t{1} << 32})}, {"S", Tensor::of<int32_t>({1}, {0})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Reshape", {"X", "S"}, {"Y", "old"}), large);
            }).find("the old size 4294967296 does not fit int32"),
            std::string::npos);
  const Feeds feeds = {{"X", normal<float>({2})}, {"S", Tensor::of<int64_t>({1}, {2})}};
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("Reshape", {"X", "S"}, {"Y"}, {to({2})}), feeds);
            }).find("by the argument \"shape\" and by an input"),
            std::string::npos);
  EXPECT_NE(error_of([&] { run_op_on(make_op("Reshape", {"X"}, {"Y"}), feeds); }).find("given neither"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::reshape_test
