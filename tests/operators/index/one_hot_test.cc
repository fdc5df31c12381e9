#include "tests/operators/op_test.h"

namespace stepnet::testing::one_hot_test {
namespace {

Tensor one_hot(const Tensor& indices, int64_t size) {
  return run_op_on(make_op("OneHot", {"I", "K"}, {"Y"}), {{"I", indices}, {"K", Tensor::scalar<int64_t>(size)}})[0];
}

TEST(OneHot, IsOneAtTheIndex) {
  const Tensor y = one_hot(Tensor::of<int64_t>({3}, {2, 0, 2}), 3);
  EXPECT_EQ(compare(y, Tensor::of<float>({3, 3}, {0, 0, 1, 1, 0, 0, 0, 0, 1}), 0), "");
  EXPECT_EQ(y.dtype(), DType::float32);
  EXPECT_EQ(compare(one_hot(Tensor::of<int32_t>({1}, {0}), 1), Tensor::of<float>({1, 1}, {1}), 0), "");
  EXPECT_EQ(one_hot(Tensor::of<int64_t>({0}, {}), 4).str(), "float[0, 4]");
}

TEST(OneHot, RefusesIndicesOutsideOfTheRow) {
  EXPECT_NE(error_of([] {
              one_hot(Tensor::of<int64_t>({2}, {0, 3}), 3);
            }).find("index 1 is 3, which is outside of 0 to 2"),
            std::string::npos);
  EXPECT_NE(error_of([] { one_hot(Tensor::of<int32_t>({1}, {-1}), 3); }).find("index 0 is -1"), std::string::npos);
  EXPECT_NE(error_of([] { one_hot(Tensor::of<int64_t>({1}, {0}), -1); }).find("index_size is -1"), std::string::npos);
  EXPECT_NE(error_of([] {
              one_hot(integers<int64_t>({1, 2}, 0, 1), 2);
            }).find("must have one dimension"),
            std::string::npos);
  EXPECT_NE(error_of([] { one_hot(normal<float>({2}), 2); }).find("must be int64 or int32"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::one_hot_test
