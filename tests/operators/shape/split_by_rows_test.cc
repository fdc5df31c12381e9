#include "tests/operators/op_test.h"

namespace stepnet::testing::split_by_rows_test {
namespace {

const Tensor kX = Tensor::of<float>({2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});

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
}  // namespace stepnet::testing::split_by_rows_test
