#include "operators/fill/random_fill.h"

#include "core/tensor/random.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::random_fill_test {
namespace {

TEST(RandomFill, ElementIsAFunctionOfKeyAndIndex) {
  Tensor y = Tensor::empty(DType::float64, {1000});
  fill_normal(5, 2, 3, y);
  for (const int i : {0, 1, 999}) EXPECT_DOUBLE_EQ(y.data<double>()[i], 2 + 3 * random_normal(5, i));
  fill_centred(5, 0.5, y);
  for (const int i : {0, 1, 999}) EXPECT_DOUBLE_EQ(y.data<double>()[i], random_uniform(5, i) - 0.5);
  Tensor z = Tensor::empty(DType::float32, {1000});
  fill_centred(5, 0.5, z);
  EXPECT_EQ(compare(z, y, 1e-7), "");
}

}  // namespace
}  // namespace stepnet::testing::random_fill_test
