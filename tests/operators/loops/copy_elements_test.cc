#include "operators/loops/copy_elements.h"

#include "tests/operators/op_test.h"

namespace stepnet::testing::copy_elements_test {
namespace {

TEST(CopyElements, CopiesRunsOfAnyType) {
  const Tensor from = Tensor::of<int16_t>({6}, {0, 1, 2, 3, 4, 5});
  Tensor to = Tensor::zeros(DType::int16, {4});
  copy_elements(from, 2, to, 1, 2);
  EXPECT_EQ(compare(to, Tensor::of<int16_t>({4}, {0, 2, 3, 0}), 0), "");
  const Tensor words = Tensor::of<std::string>({2}, {"a", "b"});
  Tensor text = Tensor::empty(DType::string, {2});
  copy_elements(words, 1, text, 0, 1);
  EXPECT_EQ(text.data<std::string>()[0], "b");
}

TEST(CopyElements, CopiesBlocks) {
  const Tensor from = Tensor::of<float>({6}, {0, 1, 2, 3, 4, 5});
  Tensor to = Tensor::zeros(DType::float32, {8});
  copy_blocks(from, to, {.blocks = 2, .count = 2, .from_at = 1, .from_stride = 3, .to_at = 0, .to_stride = 4});
  EXPECT_EQ(compare(to, Tensor::of<float>({8}, {1, 2, 0, 0, 4, 5, 0, 0}), 0), "");
}

TEST(CopyElements, EmptyBlocksTakeNoTime) {
  const Tensor from = Tensor::empty(DType::float32, {0});
  Tensor to = Tensor::empty(DType::float32, {int64_t{1} << 60, 0});
  copy_blocks(from, to, {.blocks = int64_t{1} << 60});
}

TEST(CopyElements, CopyValuesKeepsTheShapeOfTheResult) {
  const Tensor from = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  Tensor to = Tensor::zeros(DType::float32, {4});
  copy_values(from, to);
  EXPECT_EQ(compare(to, Tensor::of<float>({4}, {1, 2, 3, 4}), 0), "");
}

}  // namespace
}  // namespace stepnet::testing::copy_elements_test
