#include "tests/operators/op_test.h"

namespace stepnet::testing::transpose_test {
namespace {

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.rank());
  for (int d = 0; d < shape.rank(); ++d) strides[d] = shape.size_between(d + 1, shape.rank());
  return strides;
}

// Element by element, from the definition.
template <class T>
Tensor naive(const Tensor& x, const std::vector<int>& axes) {
  Shape shape;
  for (const int a : axes) shape.push_back(x.dim(a));
  Tensor y = Tensor::empty(x.dtype(), shape);
  const auto to = strides_of(shape), from = strides_of(x.shape());
  for (int64_t i = 0; i < y.size(); ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < axes.size(); ++d) offset += i / to[d] % shape[static_cast<int>(d)] * from[axes[d]];
    y.data<T>()[i] = x.data<T>()[offset];
  }
  return y;
}

template <class T>
void expect_naive(const Shape& shape, const std::vector<int>& axes) {
  const Tensor x = integers<T>(shape, 0, 1000000);
  const auto out = run_op_on(make_op("Transpose", {"X"}, {"Y"}, {make_arg("axes", axes)}), {{"X", x}});
  EXPECT_EQ(compare(out[0], naive<T>(x, axes), 0), "") << shape.str() << " " << fmt::format("{}", fmt::join(axes, ","));
  EXPECT_EQ(out[0].dtype(), dtype_of<T>());
}

TEST(Transpose, EqualsTheDefinition) {
  expect_naive<float>({3, 5}, {1, 0});
  expect_naive<float>({70, 45}, {1, 0});
  expect_naive<double>({2, 3, 4}, {1, 0, 2});
  expect_naive<double>({2, 3, 4}, {0, 2, 1});
  expect_naive<int32_t>({40, 3, 50}, {2, 1, 0});
  expect_naive<int64_t>({2, 3, 4}, {1, 2, 0});
  expect_naive<float>({2, 3, 4, 5}, {3, 1, 0, 2});
  expect_naive<float>({2, 3, 4, 5}, {0, 1, 2, 3});
  expect_naive<float>({2, 1, 4, 1}, {3, 2, 1, 0});
  expect_naive<float>({2, 0, 4}, {2, 1, 0});
  expect_naive<float>({1, 1}, {1, 0});
}

TEST(Transpose, ReversesByDefault) {
  const Tensor x = integers<float>({2, 3, 4}, 0, 100);
  EXPECT_EQ(compare(run_op_on(make_op("Transpose", {"X"}, {"Y"}), {{"X", x}})[0], naive<float>(x, {2, 1, 0}), 0), "");
  const Tensor scalar = Tensor::scalar<float>(3);
  EXPECT_EQ(compare(run_op_on(make_op("Transpose", {"X"}, {"Y"}), {{"X", scalar}})[0], scalar, 0), "");
}

TEST(Transpose, Gradient) {
  for (const std::vector<int>& axes : {std::vector<int>{1, 2, 0}, {0, 2, 1}, {2, 1, 0}})
    EXPECT_EQ(check_gradient(make_op("Transpose", {"X"}, {"Y"}, {make_arg("axes", axes)}),
                             {{"X", normal<double>({2, 3, 4})}}, {"X"}),
              "");
  EXPECT_EQ(check_gradient(make_op("Transpose", {"X"}, {"Y"}), {{"X", normal<double>({2, 3})}}, {"X"}), "");
}

TEST(Transpose, RefusesWhatIsNoPermutation) {
  auto error = [](const std::vector<int>& axes) {
    return error_of([&] {
      run_op_on(make_op("Transpose", {"X"}, {"Y"}, {make_arg("axes", axes)}), {{"X", normal<float>({2, 3})}});
    });
  };
  EXPECT_NE(error({0}).find("has 1 values, but the input has 2 dimensions"), std::string::npos);
  EXPECT_NE(error({1, 1}).find("once, but has 1 at place 1"), std::string::npos);
  EXPECT_NE(error({0, 2}).find("from 0 to 1 once, but has 2"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::transpose_test
