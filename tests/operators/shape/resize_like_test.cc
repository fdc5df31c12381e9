#include "tests/operators/op_test.h"

namespace stepnet::testing::resize_like_test {
namespace {

const OperatorDef kResize = make_op("ResizeLike", {"X", "S"}, {"Y"});

TEST(ResizeLike, KeepsTheElementsAndTakesTheShape) {
  const Tensor x = normal<float>({2, 3});
  const Tensor shaped = run_op_on(kResize, {{"X", x}, {"S", integers<int32_t>({3, 1, 2}, 0, 1)}})[0];
  EXPECT_EQ(shaped.str(), "float[3, 1, 2]");
  EXPECT_EQ(compare(shaped, x.reshaped({3, 1, 2}), 0), "");
  EXPECT_EQ(run_op_on(kResize, {{"X", normal<float>({2, 0})}, {"S", normal<float>({0, 5})}})[0].str(), "float[0, 5]");
  EXPECT_EQ(run_op_on(kResize, {{"X", normal<float>({1})}, {"S", normal<float>({})}})[0].str(), "float[]");
}

TEST(ResizeLike, Gradient) {
  const Feeds feeds = {{"X", normal<double>({2, 3})}, {"S", normal<double>({6})}};
  EXPECT_EQ(check_gradient(kResize, feeds, {"X"}), "");
}

TEST(ResizeLike, SizesMustBeEqual) {
  EXPECT_NE(error_of([] {
              run_op_on(kResize, {{"X", normal<float>({2, 3})}, {"S", normal<float>({5})}});
            }).find("data [2, 3] has 6 elements, which do not fit the shape [5] of shape_tensor"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::resize_like_test
