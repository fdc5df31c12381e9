// Cross against plain loops and central differences, and what its gradients read.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::cross_test {
namespace {

OperatorDef cross(int axis) { return make_op("Cross", {"A", "B"}, {"C"}, {make_arg("axis", axis)}); }

template <class T>
Feeds feeds_for(const Shape& shape) {
  return {{"A", normal<T>(shape, 1)}, {"B", normal<T>(shape, 2)}};
}

// c_i = a_j b_k - a_k b_j for (i, j, k) in a circle.
Tensor naive(const Feeds& feeds, int axis) {
  const Tensor a = to_double(feeds[0].second), b = to_double(feeds[1].second);
  Tensor c = Tensor::zeros(DType::float64, a.shape());
  const int64_t inner = a.shape().size_between(axis + 1, a.rank());
  for (int64_t at = 0; at < c.size(); ++at) {
    const int64_t i = at / inner % 3, start = at - i * inner;
    const int64_t j = start + (i + 1) % 3 * inner, k = start + (i + 2) % 3 * inner;
    c.data<double>()[at] = a.data<double>()[j] * b.data<double>()[k] - a.data<double>()[k] * b.data<double>()[j];
  }
  return c;
}

const std::pair<Shape, int> kShapes[] = {{{3}, 0},       {{4, 3}, 1}, {{3, 4}, 0},
                                         {{2, 3, 2}, 1}, {{0, 3}, 1}, {{1, 3, 1}, 1}};

TEST(Cross, ForwardIsTheFormula) {
  for (const auto& [shape, axis] : kShapes) {
    const Feeds feeds = feeds_for<double>(shape), single = feeds_for<float>(shape);
    EXPECT_EQ(compare(run_op_on(cross(axis), feeds)[0], naive(feeds, axis), 1e-15), "") << shape.str();
    EXPECT_EQ(compare(run_op_on(cross(axis - shape.rank()), feeds)[0], naive(feeds, axis), 1e-15), "") << shape.str();
    EXPECT_EQ(compare(run_op_on(cross(axis), single)[0], naive(single, axis), 1e-6), "") << shape.str();
  }
}

TEST(Cross, Gradients) {
  for (const auto& [shape, axis] : kShapes)
    EXPECT_EQ(check_gradient(cross(axis), feeds_for<double>(shape), {"A", "B"}), "") << shape.str();
}

TEST(Cross, EachGradientReadsTheOtherInputAlone) {
  EXPECT_EQ(gradient_reads(cross(0), "A"), "B");
  EXPECT_EQ(gradient_reads(cross(0), "B"), "A");
}

TEST(Cross, BadInputIsNamed) {
  EXPECT_NE(error_of([] {
              run_op_on(cross(1), feeds_for<float>({3, 4}));
            }).find("vectors along axis 1 of A [3, 4] have 4 elements, but a cross product is of 3"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              run_op_on(cross(0), {{"A", normal<float>({3})}, {"B", normal<float>({3, 1})}});
            }).find("A is [3], but B [3, 1]"),
            std::string::npos);
  error_of([] { run_op_on(cross(2), feeds_for<float>({3, 4})); });
}

}  // namespace
}  // namespace stepnet::testing::cross_test
