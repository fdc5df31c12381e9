// SumElements and SumSqrElements: sums and means.
#include "tests/operators/op_test.h"

namespace stepnet::testing::sum_elements_test {
namespace {

TEST(SumElements, SumMeanAndGradients) {
  for (const bool average : {false, true})
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 5}}) {
      const Tensor x = normal<double>(shape);
      double sum = 0, squares = 0;
      for (const double v : x.span<double>()) sum += v, squares += v * v;
      const double n = average && x.size() > 0 ? static_cast<double>(x.size()) : 1;
      const Argument arg = make_arg("average", average);
      const OperatorDef def = make_op("SumElements", {"X"}, {"Y"}, {arg});
      const OperatorDef sqr = make_op("SumSqrElements", {"X"}, {"Y"}, {arg});
      EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], Tensor::scalar(sum / n), 1e-14), "");
      EXPECT_EQ(compare(run_op_on(sqr, {{"X", x}})[0], Tensor::scalar(squares / n), 1e-14), "");
      EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "");
      EXPECT_EQ(check_gradient(sqr, {{"X", x}}, {"X"}), "");
      const OperatorDef back = make_op("SumElementsGradient", {"X", "dY"}, {"dX"}, {arg});
      EXPECT_EQ(check_gradient(back, {{"X", x}, {"dY", normal<double>({})}}, {"dY"}), "");
    }
}

TEST(SumElements, TheGivenGradientIsOneNumber) {
  const OperatorDef back = make_op("SumElementsGradient", {"X", "dY"}, {"dX"});
  EXPECT_NE(error_of([&] {
              run_op_on(back, {{"X", normal<float>({3})}, {"dY", normal<float>({2})}});
            }).find("dY must be one number, but is [2]"),
            std::string::npos);
}

// As Caffe2 1.10 gives them.
TEST(LpNorm, IsASumOfPowers) {
  const Feeds feeds = {{"X", Tensor::of<double>({3}, {1, -3, 0})}, {"dY", Tensor::of<double>({1}, {3})}};
  const auto run = [&](int p, bool average) {
    const std::vector<Argument> args = {make_arg("p", p), make_arg("average", average)};
    return std::pair{run_op_on(make_op("LpNorm", {"X"}, {"Y"}, args), feeds)[0],
                     run_op_on(make_op("LpNormGradient", {"X", "dY"}, {"dX"}, args), feeds)[0]};
  };
  const auto check = [&](int p, bool average, double sum, double of_first, double of_second) {
    const auto [y, dx] = run(p, average);
    EXPECT_EQ(compare(y, Tensor::of<double>({1}, {sum}), 1e-14), "") << p << average;
    EXPECT_EQ(compare(dx, Tensor::of<double>({3}, {of_first, of_second, 0}), 1e-14), "") << p << average;
  };
  check(1, false, 4, 3, -3);
  check(1, true, 4.0 / 3, 1, -1);
  check(2, false, 10, 6, -18);
  check(2, true, 10.0 / 3, 2, -6);
}

TEST(LpNorm, Gradients) {
  for (const int p : {1, 2})
    for (const bool average : {false, true})
      for (const Shape& shape : {Shape{4}, Shape{2, 3}, Shape{0}}) {
        const std::vector<Argument> args = {make_arg("p", p), make_arg("average", average)};
        const Feeds feeds = {{"X", normal<double>(shape)}, {"dY", normal<double>({1}, 2)}};
        EXPECT_EQ(check_gradient(make_op("LpNorm", {"X"}, {"Y"}, args), feeds, {"X"}), "");
        EXPECT_EQ(check_gradient(make_op("LpNormGradient", {"X", "dY"}, {"dX"}, args), feeds, {"X", "dY"}), "");
      }
  EXPECT_NE(error_of([] {
              run_op_on(make_op("LpNorm", {"X"}, {"Y"}, {make_arg("p", 3)}), {{"X", normal<float>({2})}});
            }).find("argument \"p\" must be 1 or 2, but is 3"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sum_elements_test
