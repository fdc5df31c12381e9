// SumReduceLike and its gradient: each undoes the shape that the other makes.
#include "tests/operators/op_test.h"

namespace stepnet::testing::sum_reduce_like_test {
namespace {

OperatorDef reduce(const std::vector<Argument>& args = {}) { return make_op("SumReduceLike", {"A", "B"}, {"C"}, args); }

TEST(SumReduceLike, SumsToTheShapeOfB) {
  const Tensor a = normal<double>({2, 3, 4}, 1);
  Tensor last = Tensor::zeros(DType::float64, {4}), middle = Tensor::zeros(DType::float64, {3, 1});
  for (int64_t i = 0; i < a.size(); ++i) {
    last.data<double>()[i % 4] += a.data<double>()[i];
    middle.data<double>()[i / 4 % 3] += a.data<double>()[i];
  }
  EXPECT_EQ(compare(run_op_on(reduce(), {{"A", a}, {"B", last}})[0], last, 1e-14), "");
  EXPECT_EQ(compare(run_op_on(reduce(), {{"A", a}, {"B", middle}})[0], middle, 1e-14), "");
  const Tensor aligned = middle.reshaped({3});
  EXPECT_EQ(compare(run_op_on(reduce({make_arg("axis", 1)}), {{"A", a}, {"B", aligned}})[0], aligned, 1e-14), "");
  EXPECT_EQ(compare(run_op_on(reduce(), {{"A", a}, {"B", a}})[0], a, 0), "");
}

TEST(SumReduceLike, OfNothingIsZero) {
  const Tensor c = run_op_on(reduce(), {{"A", normal<float>({0, 3})}, {"B", normal<float>({3})}})[0];
  EXPECT_EQ(compare(c, Tensor::zeros(DType::float32, {3}), 0), "");
}

TEST(SumReduceLike, Gradients) {
  for (const Shape& b : {Shape{}, Shape{1}, Shape{4}, Shape{3, 1}, Shape{2, 1, 4}, Shape{2, 3, 4}}) {
    const Feeds feeds = {{"A", normal<double>({2, 3, 4}, 1)}, {"B", normal<double>(b, 2)}};
    EXPECT_EQ(check_gradient(reduce(), feeds, {"A"}), "") << b.str();
    const OperatorDef back = make_op("SumReduceLikeGradient", {"A", "dC"}, {"dA"});
    EXPECT_EQ(check_gradient(back, {{"A", feeds[0].second}, {"dC", feeds[1].second}}, {"dC"}), "") << b.str();
  }
}

TEST(SumReduceLike, BMustGoWithA) {
  EXPECT_NE(error_of([] {
              run_op_on(reduce(), {{"A", normal<float>({1, 3})}, {"B", normal<float>({2, 3})}});
            }).find("A [1, 3] is not B [2, 3] broadcast, so it cannot be summed to it"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::sum_reduce_like_test
