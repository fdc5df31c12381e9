// Split and SplitByRows against plain loops and central differences.
#include "tests/operators/op_test.h"

namespace stepnet::testing::split_test {
namespace {

const Tensor kX = Tensor::of<float>({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});

TEST(Split, CutsIntoEqualParts) {
  const auto parts = run_op_on(make_op("Split", {"X"}, {"a", "b"}), {{"X", kX}});
  EXPECT_EQ(compare(parts[0], Tensor::of<float>({2, 2}, {0, 1, 4, 5}), 0), "");
  EXPECT_EQ(compare(parts[1], Tensor::of<float>({2, 2}, {2, 3, 6, 7}), 0), "");
  const auto rows = run_op_on(make_op("Split", {"X"}, {"a", "b"}, {make_arg("axis", -2)}), {{"X", kX}});
  EXPECT_EQ(compare(rows[1], Tensor::of<float>({1, 4}, {4, 5, 6, 7}), 0), "");
}

TEST(Split, CutsByGivenSizes) {
  const Argument sizes = make_arg("split", std::vector<int>{1, 0, 3});
  const Feeds feeds = {{"X", kX}, {"S", Tensor::of<int32_t>({3}, {1, 0, 3})}};
  const std::vector<std::vector<Tensor>> both = {run_op_on(make_op("Split", {"X"}, {"a", "b", "c"}, {sizes}), feeds),
                                                 run_op_on(make_op("Split", {"X", "S"}, {"a", "b", "c"}), feeds)};
  for (const auto& parts : both) {
    EXPECT_EQ(compare(parts[0], Tensor::of<float>({2, 1}, {0, 4}), 0), "");
    EXPECT_EQ(parts[1].str(), "float[2, 0]");
    EXPECT_EQ(compare(parts[2], Tensor::of<float>({2, 3}, {1, 2, 3, 5, 6, 7}), 0), "");
  }
}

TEST(Split, IsTheLoop) {
  const Tensor x = normal<double>({3, 4, 2});
  const std::vector<std::vector<int>> sizes = {{1, 0, 2}, {3, 1, 0}, {0, 1, 1}};
  for (int axis = 0; axis < 3; ++axis) {
    const OperatorDef def =
        make_op("Split", {"X"}, {"a", "b", "c"}, {make_arg("axis", axis), make_arg("split", sizes[axis])});
    const auto parts = run_op_on(def, {{"X", x}});
    const int64_t inner = x.shape().size_between(axis + 1, 3);
    for (int64_t k = 0; k < x.size(); ++k) {
      int64_t at = k / inner % x.dim(axis), part = 0;
      while (at >= sizes[axis][part]) at -= sizes[axis][part++];
      const int64_t row = k / inner / x.dim(axis) * sizes[axis][part] + at;
      EXPECT_EQ(parts[part].data<double>()[row * inner + k % inner], x.data<double>()[k]) << axis << " " << k;
    }
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "") << axis;
  }
}

TEST(Split, DropsTheDimension) {
  const auto rows =
      run_op_on(make_op("Split", {"X"}, {"a", "b"}, {make_arg("axis", 0), make_arg("add_axis", 1)}), {{"X", kX}});
  EXPECT_EQ(compare(rows[1], Tensor::of<float>({4}, {4, 5, 6, 7}), 0), "");
}

TEST(Split, Gradient) {
  const Feeds feeds = {{"X", normal<double>({2, 4})}, {"S", Tensor::of<int32_t>({3}, {1, 0, 3})}};
  EXPECT_EQ(check_gradient(make_op("Split", {"X"}, {"a", "b"}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(make_op("Split", {"X", "S"}, {"a", "b", "c"}), feeds, {"X"}), "");
  EXPECT_EQ(
      check_gradient(make_op("Split", {"X"}, {"a", "b"}, {make_arg("axis", 0), make_arg("add_axis", 1)}), feeds, {"X"}),
      "");
}

TEST(Split, GradientOfOnePartOnly) {
  const Feeds feeds = {{"X", normal<double>({2, 4})}};
  EXPECT_EQ(check_gradient(make_op("Split", {"X"}, {"a", "b"}), feeds, {"X"}, 1e-7, 1e-5, {"b"}), "");
}

TEST(Split, RefusesSizesThatDoNotFit) {
  auto error = [](const std::vector<Argument>& args, const std::vector<std::string>& outputs) {
    return error_of([&] { run_op_on(make_op("Split", {"X"}, outputs, args), {{"X", kX}}); });
  };
  EXPECT_NE(error({}, {"a", "b", "c"}).find("size 4 cannot be split into 3 equal parts"), std::string::npos);
  EXPECT_NE(error({make_arg("split", std::vector<int>{1, 2})}, {"a", "b"}).find("add up to 3, but the input has 4"),
            std::string::npos);
  EXPECT_NE(error({make_arg("split", std::vector<int>{5, -1})}, {"a", "b"}).find("exceed the input's size 4"),
            std::string::npos);
  EXPECT_NE(error({make_arg("split", std::vector<int>{-1, 5})}, {"a", "b"}).find("is -1, which is negative"),
            std::string::npos);
  EXPECT_NE(error({make_arg("split", std::vector<int>{4})}, {"a", "b"}).find("1 sizes are given for 2 outputs"),
            std::string::npos);
  EXPECT_NE(error({make_arg("axis", 2)}, {"a", "b"}).find("axis 2 is out of range"), std::string::npos);
  EXPECT_NE(error({make_arg("add_axis", 1), make_arg("axis", 1)}, {"a", "b"}).find("each part has size 1"),
            std::string::npos);
}

Tensor matrix(int64_t rows) { return Tensor::zeros(DType::float32, {rows, 3}); }

TEST(SplitByRows, CutsAsWideAsMatricesHaveRows) {
  const auto parts = run_op_on(make_op("SplitByRows", {"X", "V", "W", "U"}, {"a", "b", "c"}),
                               {{"X", kX}, {"V", matrix(1)}, {"W", matrix(0)}, {"U", matrix(3)}});
  EXPECT_EQ(compare(parts[0], Tensor::of<float>({2, 1}, {0, 4}), 0), "");
  EXPECT_EQ(parts[1].str(), "float[2, 0]");
  EXPECT_EQ(compare(parts[2], Tensor::of<float>({2, 3}, {1, 2, 3, 5, 6, 7}), 0), "");
  const auto rows = run_op_on(make_op("SplitByRows", {"X", "V", "V"}, {"a", "b"}, {make_arg("axis", -2)}),
                              {{"X", kX}, {"V", matrix(1)}});
  EXPECT_EQ(compare(rows[1], Tensor::of<float>({1, 4}, {4, 5, 6, 7}), 0), "");
}

TEST(SplitByRows, Gradient) {
  const Feeds feeds = {{"X", normal<double>({2, 4})},
                       {"V", Tensor::zeros(DType::float64, {1, 3})},
                       {"W", Tensor::zeros(DType::float64, {3, 3})}};
  EXPECT_EQ(check_gradient(make_op("SplitByRows", {"X", "V", "W"}, {"a", "b"}), feeds, {"X"}), "");
  EXPECT_EQ(check_gradient(make_op("SplitByRows", {"X", "V", "W"}, {"a", "b"}), feeds, {"X"}, 1e-7, 1e-5, {"b"}), "");
}

TEST(SplitByRows, RefusesRowsThatDoNotFit) {
  const auto error = [](int64_t rows, const std::vector<std::string>& outputs) {
    return error_of([&] {
      run_op_on(make_op("SplitByRows", {"X", "V", "W"}, outputs), {{"X", kX}, {"V", matrix(1)}, {"W", matrix(rows)}});
    });
  };
  EXPECT_NE(error(2, {"a", "b"}).find("the matrices have 3 rows, but X's dimension 1 has size 4"), std::string::npos)
      << error(2, {"a", "b"});
  EXPECT_NE(error(4, {"a", "b"}).find("more rows than the 4 of X's dimension 1"), std::string::npos);
  EXPECT_NE(error(3, {"a"}).find("1 outputs for 2 matrices"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::split_test
