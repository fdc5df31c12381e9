// AddR against plain loops and central differences, in place, and what its gradients read.
#include <limits>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::add_r_test {
namespace {

OperatorDef add_r(float beta = 1, float alpha = 1, const char* output = "Z") {
  return make_op("AddR", {"M", "X", "Y"}, {output}, {make_arg("beta", beta), make_arg("alpha", alpha)});
}

template <class T>
Feeds feeds_for(const Shape& m) {
  return {{"M", normal<T>(m, 1)}, {"X", normal<T>({m[0]}, 2)}, {"Y", normal<T>({m[1]}, 3)}};
}

Tensor naive(const Feeds& feeds, double beta, double alpha) {
  Tensor z = to_double(feeds[0].second);
  const Tensor x = to_double(feeds[1].second), y = to_double(feeds[2].second);
  for (int64_t i = 0; i < z.size(); ++i)
    z.data<double>()[i] =
        beta * z.data<double>()[i] + alpha * x.data<double>()[i / y.size()] * y.data<double>()[i % y.size()];
  return z;
}

const Shape kMatrices[] = {{3, 5}, {1, 1}, {0, 4}, {4, 0}};

TEST(AddR, ForwardIsTheFormula) {
  for (const Shape& m : kMatrices) {
    const Feeds feeds = feeds_for<double>(m), single = feeds_for<float>(m);
    EXPECT_EQ(compare(run_op_on(add_r(), feeds)[0], naive(feeds, 1, 1), 1e-15), "") << m.str();
    EXPECT_EQ(compare(run_op_on(add_r(0.5, -2), feeds)[0], naive(feeds, 0.5, -2), 1e-15), "") << m.str();
    EXPECT_EQ(compare(run_op_on(add_r(), single)[0], naive(single, 1, 1), 1e-6), "") << m.str();
  }
}

TEST(AddR, WithABetaOfZeroMIsNotUsed) {
  Feeds feeds = feeds_for<double>({3, 5});
  const Tensor expected = naive(feeds, 0, 1);
  feeds[0].second.data<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(compare(run_op_on(add_r(0), feeds)[0], expected, 1e-15), "");
}

TEST(AddR, Gradients) {
  for (const Shape& m : kMatrices) {
    EXPECT_EQ(check_gradient(add_r(), feeds_for<double>(m), {"M", "X", "Y"}), "") << m.str();
    EXPECT_EQ(check_gradient(add_r(0.5, -2), feeds_for<double>(m), {"M", "X", "Y"}), "") << m.str();
  }
}

TEST(AddR, EachGradientReadsTheOtherFactorAlone) {
  EXPECT_EQ(gradient_reads(add_r(2, 3), "M"), "");
  EXPECT_EQ(gradient_reads(add_r(2, 3), "X"), "Y");
  EXPECT_EQ(gradient_reads(add_r(2, 3), "Y"), "X");
}

TEST(AddR, InPlaceOfM) {
  const Feeds feeds = feeds_for<double>({3, 5});
  const OperatorDef onto = add_r(0.5, -2, "M");
  EXPECT_EQ(compare(run_op_on(onto, feeds)[0], naive(feeds, 0.5, -2), 1e-15), "");
  EXPECT_EQ(check_gradient(onto, feeds, {"M", "X", "Y"}), "");
}

std::string error_with(int input, const Shape& shape) {
  Feeds feeds = feeds_for<float>({3, 5});
  feeds[input].second = normal<float>(shape);
  return error_of([&] { run_op_on(add_r(), feeds); });
}

TEST(AddR, BadShapesAreNamed) {
  EXPECT_NE(error_with(0, {5}).find("M is [5], but the product is [3, 5]"), std::string::npos);
  EXPECT_NE(error_with(1, {3, 1}).find("X is [3, 1], but a vector has one dimension"), std::string::npos);
  EXPECT_NE(error_with(2, {}).find("Y is [], but a vector has one dimension"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::add_r_test
