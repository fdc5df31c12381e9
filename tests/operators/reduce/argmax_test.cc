// ArgMax against plain loops.
#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::argmax_test {
namespace {

OperatorDef argmax(int axis, bool keepdims) {
  return make_op("ArgMax", {"X"}, {"Indices"}, {make_arg("axis", axis), make_arg("keepdims", keepdims)});
}

template <class T>
Tensor naive(const Tensor& x, int axis, const Shape& shape) {
  Tensor y = Tensor::zeros(DType::int64, shape);
  const int64_t size = x.dim(axis), inner = x.shape().from(axis + 1).size();
  for (int64_t line = 0; line < y.size(); ++line) {
    const T* from = x.data<T>() + line / inner * size * inner + line % inner;
    for (int64_t k = size - 1; k >= 0; --k)
      if (from[k * inner] >= from[y.data<int64_t>()[line] * inner]) y.data<int64_t>()[line] = k;
  }
  return y;
}

TEST(ArgMax, FindsTheFirstOfTheGreatest) {
  for (int axis = 0; axis < 3; ++axis) {
    const Tensor x = normal<float>({3, 4, 5}), few = integers<int32_t>({3, 4, 5}, 0, 2);
    const Shape kept = x.shape().with(axis, 1);
    Shape lost;
    for (int i = 0; i < 3; ++i)
      if (i != axis) lost.push_back(x.dim(i));
    EXPECT_EQ(compare(run_op_on(argmax(axis, true), {{"X", x}})[0], naive<float>(x, axis, kept), 0), "");
    EXPECT_EQ(compare(run_op_on(argmax(axis - 3, false), {{"X", x}})[0], naive<float>(x, axis, lost), 0), "");
    EXPECT_EQ(compare(run_op_on(argmax(axis, true), {{"X", few}})[0], naive<int32_t>(few, axis, kept), 0), "");
  }
}

TEST(ArgMax, TheDefaultIsTheLastAxisWhichStays) {
  const Tensor y = run_op_on(make_op("ArgMax", {"X"}, {"Y"}), {{"X", Tensor::of<double>({2, 2}, {1, 2, 4, 3})}})[0];
  EXPECT_EQ(compare(y, Tensor::of<int64_t>({2, 1}, {1, 0}), 0), "");
  EXPECT_EQ(y.dtype(), DType::int64);
}

TEST(ArgMax, NaNCountsAsTheGreatest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({2, 4}, {1, nan, 9, nan, nan, 1, 2, 3});
  EXPECT_EQ(compare(run_op_on(argmax(1, false), {{"X", x}})[0], Tensor::of<int64_t>({2}, {1, 0}), 0), "");
}

TEST(ArgMax, OfNothingIsAnError) {
  auto run = [](const Shape& shape) { return run_op_on(argmax(1, false), {{"X", normal<float>(shape)}})[0].shape(); };
  EXPECT_NE(error_of([&] {
              run({2, 0});
            }).find("X [2, 0] has no elements along axis 1; nothing has no maximum"),
            std::string::npos);
  EXPECT_EQ(run({0, 0}), Shape{0});
  EXPECT_EQ(run({0, 3}), Shape{0});
  EXPECT_NE(error_of([&] { run({3}); }).find("axis 1 is out of range for 1 dimensions"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::argmax_test
