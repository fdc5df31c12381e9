// TopK and ArgMax against a sort.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/operators/op_test.h"

namespace stepnet::testing::topk_test {
namespace {

namespace of_topk {

OperatorDef topk(int k, int axis) {
  return make_op("TopK", {"X"}, {"Values", "Indices", "Flat"}, {make_arg("k", k), make_arg("axis", axis)});
}

// Values, indices and flattened indices, by a stable sort.
std::vector<Tensor> naive(const Tensor& x, int64_t k, int axis) {
  const Shape shape = x.shape().with(axis, k);
  std::vector<Tensor> y = {Tensor::zeros(DType::float64, shape), Tensor::zeros(DType::int64, shape),
                           Tensor::zeros(DType::int64, {shape.size()})};
  const int64_t size = x.dim(axis), inner = x.shape().from(axis + 1).size();
  for (int64_t line = 0; line < x.size() / size; ++line) {
    const int64_t first = line / inner * size * inner + line % inner, to = line / inner * k * inner + line % inner;
    std::vector<int64_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(), [&](int64_t i) { return x.data<double>()[first + i * inner]; });
    for (int64_t n = 0; n < k; ++n) {
      y[0].data<double>()[to + n * inner] = x.data<double>()[first + order[n] * inner];
      y[1].data<int64_t>()[to + n * inner] = order[n];
      y[2].data<int64_t>()[to + n * inner] = first + order[n] * inner;
    }
  }
  return y;
}

TEST(TopK, SortsEachLine) {
  for (const Tensor& x : {normal<double>({3, 4, 5}), integers<double>({3, 4, 5}, 0, 2)})
    for (int axis = 0; axis < 3; ++axis)
      for (const int k : {1, 2, 3}) {
        const auto y = run_op_on(topk(k, axis - 3), {{"X", x}}), wanted = naive(x, k, axis);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(compare(y[i], wanted[i], 0), "") << axis << k << i;
      }
}

TEST(TopK, TheDefaultIsTheLastAxis) {
  const OperatorDef def = make_op("TopK", {"X"}, {"V", "I"}, {make_arg("k", 2)});
  const auto y = run_op_on(def, {{"X", Tensor::of<int32_t>({2, 3}, {5, 7, 6, 3, 1, 2})}});
  EXPECT_EQ(compare(y[0], Tensor::of<int32_t>({2, 2}, {7, 6, 3, 2}), 0), "");
  EXPECT_EQ(compare(y[1], Tensor::of<int64_t>({2, 2}, {1, 2, 0, 2}), 0), "");
}

TEST(TopK, NaNCountsAsTheGreatest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({5}, {1, nan, 9, nan, 3});
  const auto y = run_op_on(topk(4, 0), {{"X", x}});
  for (const int i : {0, 1}) EXPECT_TRUE(std::isnan(y[0].data<float>()[i])) << i;
  EXPECT_EQ(compare(y[0].rows(2, 2), Tensor::of<float>({2}, {9, 3}), 0), "");
  EXPECT_EQ(compare(y[1], Tensor::of<int64_t>({4}, {1, 3, 2, 4}), 0), "");
}

TEST(TopK, Gradients) {
  for (const int axis : {0, 1, 2})
    EXPECT_EQ(check_gradient(topk(2, axis), {{"X", normal<double>({2, 3, 4})}}, {"X"}), "") << axis;
  EXPECT_EQ(check_gradient(topk(1, 0), {{"X", normal<double>({1})}}, {"X"}), "");
  EXPECT_EQ(check_gradient(topk(2, 1), {{"X", normal<double>({0, 3})}}, {"X"}), "");
}

// As in Caffe2 1.10.
TEST(TopK, FillsUpWhereThereAreFewer) {
  const Tensor x = Tensor::of<float>({2, 2}, {3, 1, 2, 5});
  const auto y = run_op_on(topk(3, 1), {{"X", x}});
  EXPECT_EQ(compare(y[0], Tensor::of<float>({2, 3}, {3, 1, 0, 5, 2, 0}), 0), "");
  EXPECT_EQ(compare(y[1], Tensor::of<int64_t>({2, 3}, {0, 1, -1, 1, 0, -1}), 0), "");
  EXPECT_EQ(compare(y[2], Tensor::of<int64_t>({6}, {0, 1, -1, 3, 2, -1}), 0), "");
  EXPECT_EQ(compare(run_op_on(topk(3, 0), {{"X", x}})[0], Tensor::of<float>({3, 2}, {3, 5, 2, 1, 0, 0}), 0), "");
  for (const int axis : {0, 1}) EXPECT_EQ(check_gradient(topk(3, axis), {{"X", normal<double>({2, 2})}}, {"X"}), "");
  EXPECT_EQ(check_gradient(topk(2, 1), {{"X", normal<double>({2, 0})}}, {"X"}), "");
  const Feeds feeds = {{"dV", normal<double>({2, 3})}, {"I", y[1]}, {"X", normal<double>({2, 2})}};
  const OperatorDef gradient = make_op("TopKGradient", {"dV", "I", "X"}, {"dX"}, {make_arg("k", 3)});
  EXPECT_EQ(check_gradient(gradient, feeds, {"dV"}), "");
}

TEST(TopK, BadInputIsNamed) {
  auto error = [](int k, int axis) {
    return error_of([&] { run_op_on(topk(k, axis), {{"X", normal<float>({2, 3})}}); });
  };
  EXPECT_NE(error(0, 1).find("argument \"k\" must be at least 1, but is 0"), std::string::npos);
  EXPECT_NE(error(1, 2).find("axis 2 is out of range for 2 dimensions"), std::string::npos);
  const std::string text = error_of([] {
    run_op_on(
        make_op("TopKGradient", {"dV", "I", "X"}, {"dX"}, {make_arg("k", 1)}),
        {{"dV", normal<float>({2, 1})}, {"I", Tensor::of<int64_t>({2, 1}, {0, 3})}, {"X", normal<float>({2, 3})}});
  });
  EXPECT_NE(text.find("index 1 is 3, which is outside of 0 to 2"), std::string::npos) << text;
}

TEST(TopK, GradientsOfGradients) {
  const Tensor indices = Tensor::of<int64_t>({2, 2}, {2, 0, 1, 1});
  const Feeds feeds = {{"dV", normal<double>({2, 2}, 1)}, {"I", indices}, {"X", normal<double>({2, 3}, 2)}};
  const OperatorDef def = make_op("TopKGradient", {"dV", "I", "X"}, {"dX"}, {make_arg("k", 2)});
  EXPECT_EQ(check_gradient(def, feeds, {"dV"}), "");
  const OperatorDef second = make_op("TopKSecondGradient", {"X", "I"}, {"V"}, {make_arg("k", 2)});
  const Tensor x = Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(compare(run_op_on(second, {{"X", x}, {"I", indices}})[0], Tensor::of<double>({2, 2}, {3, 1, 5, 5}), 0), "");
  EXPECT_EQ(check_gradient(second, {feeds[1], feeds[2]}, {"X"}), "");
  const Feeds outside = {{"X", x}, {"I", Tensor::of<int64_t>({2, 2}, {0, 1, 2, -1})}};
  EXPECT_NE(error_of([&] { run_op_on(second, outside); }).find("index 3 is -1"), std::string::npos);
}

}  // namespace of_topk

namespace of_argmax {

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

}  // namespace of_argmax

}  // namespace
}  // namespace stepnet::testing::topk_test
