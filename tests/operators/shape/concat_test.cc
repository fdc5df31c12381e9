#include <limits>

#include "tests/operators/op_test.h"

namespace stepnet::testing::concat_test {
namespace {

// Joins [A, a_i, B] tensors along the middle dimension, element by element.
Tensor naive(const std::vector<Tensor>& parts) {
  int64_t total = 0;
  for (const Tensor& p : parts) total += p.dim(1);
  const int64_t outer = parts[0].dim(0), inner = parts[0].dim(2);
  Tensor y = Tensor::empty(DType::float32, {outer, total, inner});
  int64_t at = 0;
  for (const Tensor& p : parts) {
    for (int64_t i = 0; i < outer; ++i)
      for (int64_t j = 0; j < p.dim(1); ++j)
        for (int64_t k = 0; k < inner; ++k)
          y.data<float>()[(i * total + at + j) * inner + k] = p.data<float>()[(i * p.dim(1) + j) * inner + k];
    at += p.dim(1);
  }
  return y;
}

std::vector<Tensor> concat(const std::vector<Tensor>& parts, const std::vector<Argument>& args = {}) {
  Feeds feeds;
  std::vector<std::string> names;
  for (const Tensor& p : parts) {
    names.push_back(fmt::format("X{}", feeds.size()));
    feeds.emplace_back(names.back(), p);
  }
  return run_op_on(make_op("Concat", names, {"Y", "info"}, args), feeds);
}

TEST(Concat, JoinsAlongTheAxis) {
  const std::vector<Tensor> parts = {normal<float>({3, 2, 4}, 1), normal<float>({3, 0, 4}, 2),
                                     normal<float>({3, 1, 4}, 3)};
  for (const std::vector<Argument>& args :
       {std::vector<Argument>{}, {make_arg("axis", 1)}, {make_arg("axis", -2)}, {make_arg("order", "NCHW")}}) {
    const auto out = concat(parts, args);
    EXPECT_EQ(compare(out[0], naive(parts), 0), "");
    EXPECT_EQ(compare(out[1], Tensor::of<int32_t>({3}, {2, 0, 1}), 0), "");
    EXPECT_EQ(out[1].dtype(), DType::int32);
  }
}

TEST(Concat, JoinsRowsAndTheLastDimension) {
  const Tensor a = Tensor::of<int64_t>({1, 2}, {1, 2}), b = Tensor::of<int64_t>({1, 2}, {3, 4});
  EXPECT_EQ(compare(concat({a, b}, {make_arg("axis", 0)})[0], Tensor::of<int64_t>({2, 2}, {1, 2, 3, 4}), 0), "");
  const Tensor image = normal<float>({1, 2, 3, 2});
  EXPECT_EQ(concat({image, image}, {make_arg("order", "NHWC")})[0].shape(), (Shape{1, 2, 3, 4}));
  const Tensor text = Tensor::of<std::string>({1}, {"a"});
  EXPECT_EQ(concat({text, text}, {make_arg("axis", 0)})[0].str(), "string[2]");
}

TEST(Concat, StacksOnANewDimension) {
  const Tensor a = Tensor::of<float>({2}, {1, 2}), b = Tensor::of<float>({2}, {3, 4});
  const Argument add = make_arg("add_axis", 1);
  EXPECT_EQ(compare(concat({a, b}, {add, make_arg("axis", 0)})[0], Tensor::of<float>({2, 2}, {1, 2, 3, 4}), 0), "");
  EXPECT_EQ(compare(concat({a, b}, {add, make_arg("axis", -1)})[0], Tensor::of<float>({2, 2}, {1, 3, 2, 4}), 0), "");
  EXPECT_EQ(compare(concat({a, b}, {add})[1], Tensor::of<int32_t>({2}, {1, 1}), 0), "");
}

TEST(Concat, Gradient) {
  const Feeds feeds = {
      {"A", normal<double>({2, 3}, 1)}, {"B", normal<double>({2, 1}, 2)}, {"C", normal<double>({2, 0}, 3)}};
  for (const std::vector<std::string>& outputs : {std::vector<std::string>{"Y", "info"}, {"Y"}}) {
    EXPECT_EQ(check_gradient(make_op("Concat", {"A", "B", "C"}, outputs), feeds, {"A", "B", "C"}), "");
    EXPECT_EQ(check_gradient(make_op("Concat", {"A", "B"}, outputs), feeds, {"B"}), "");
    EXPECT_EQ(check_gradient(make_op("Concat", {"A", "D"}, outputs, {make_arg("axis", -1), make_arg("add_axis", 1)}),
                             {{"A", normal<double>({2, 3})}, {"D", normal<double>({2, 3})}}, {"A", "D"}),
              "");
  }
}

TEST(Concat, RefusesPartsThatDoNotFit) {
  EXPECT_NE(error_of([] {
              concat({normal<float>({2, 3}), normal<float>({3, 3})});
            }).find("part 1 has shape [3, 3], which does not fit part 0 of shape [2, 3] along dimension 1"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              concat({normal<float>({2, 3}), normal<float>({2})});
            }).find("part 1 has shape [2]"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              concat({normal<float>({2, 3}), normal<double>({2, 3})});
            }).find("must have one type"),
            std::string::npos);
  EXPECT_NE(error_of([] { concat({normal<float>({2})}); }).find("axis 1 is out of range for 1"), std::string::npos);
  const int64_t large = int64_t{1} << 32;
  EXPECT_NE(error_of([&] {
              concat({normal<float>({0, large})});
            }).find("the size of a part, 4294967296 does not fit int32"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              concat({normal<float>({0, std::numeric_limits<int64_t>::max()}), normal<float>({0, 1})});
            }).find("the parts are too large"),
            std::string::npos);
  const std::vector<Argument> both = {make_arg("axis", 1), make_arg("order", "NCHW")};
  EXPECT_NE(error_of([&] { concat({normal<float>({2, 3})}, both); }).find("exclude each other"), std::string::npos);
  EXPECT_NE(error_of([] {
              concat({normal<float>({2, 3})}, {make_arg("order", "CHW")});
            }).find("NCHW or NHWC"),
            std::string::npos);
}

TEST(SplitLike, UndoesConcat) {
  const Feeds feeds = {{"Y", normal<double>({2, 5})}, {"A", normal<double>({2, 2})}, {"B", normal<double>({2, 3})}};
  const OperatorDef def = make_op("SplitLike", {"Y", "A", "B"}, {"a", "b"});
  const auto parts = run_op_on(def, feeds);
  const Tensor& y = feeds[0].second;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 5; ++j)
      EXPECT_EQ(j < 2 ? parts[0].data<double>()[i * 2 + j] : parts[1].data<double>()[i * 3 + j - 2],
                y.data<double>()[i * 5 + j]);
  EXPECT_EQ(check_gradient(def, feeds, {"Y"}), "");
  EXPECT_NE(error_of([&] {
              run_op_on(make_op("SplitLike", {"Y", "A"}, {"a"}), feeds);
            }).find("the parts make shape [2, 2], but the input has shape [2, 5]"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::concat_test
