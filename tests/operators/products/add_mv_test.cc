// AddMV against plain loops and central differences, and what its gradients read.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::add_mv_test {
namespace {

OperatorDef add_mv(float beta = 1, float alpha = 1) {
  return make_op("AddMV", {"V", "A", "X"}, {"Y"}, {make_arg("beta", beta), make_arg("alpha", alpha)});
}

template <class T>
Feeds feeds_for(const Shape& a) {
  return {{"V", normal<T>({a[0]}, 1)}, {"A", normal<T>(a, 2)}, {"X", normal<T>({a[1]}, 3)}};
}

Tensor naive(const Feeds& feeds, double beta, double alpha) {
  Tensor y = to_double(feeds[0].second);
  const Tensor a = to_double(feeds[1].second), x = to_double(feeds[2].second);
  for (int64_t i = 0; i < a.dim(0); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < a.dim(1); ++j) sum += a.data<double>()[i * a.dim(1) + j] * x.data<double>()[j];
    y.data<double>()[i] = beta * y.data<double>()[i] + alpha * sum;
  }
  return y;
}

const Shape kMatrices[] = {{3, 5}, {1, 1}, {0, 4}, {4, 0}};

TEST(AddMV, ForwardIsTheFormula) {
  for (const Shape& a : kMatrices) {
    const Feeds feeds = feeds_for<double>(a), single = feeds_for<float>(a);
    EXPECT_EQ(compare(run_op_on(add_mv(), feeds)[0], naive(feeds, 1, 1), 1e-14), "") << a.str();
    EXPECT_EQ(compare(run_op_on(add_mv(0.5, -2), feeds)[0], naive(feeds, 0.5, -2), 1e-14), "") << a.str();
    EXPECT_EQ(compare(run_op_on(add_mv(), single)[0], naive(single, 1, 1), 1e-5), "") << a.str();
  }
}

TEST(AddMV, Gradients) {
  for (const Shape& a : kMatrices) {
    EXPECT_EQ(check_gradient(add_mv(), feeds_for<double>(a), {"V", "A", "X"}), "") << a.str();
    EXPECT_EQ(check_gradient(add_mv(0.5, -2), feeds_for<double>(a), {"V", "A", "X"}), "") << a.str();
  }
}

TEST(AddMV, EachGradientReadsTheOtherFactorAlone) {
  EXPECT_EQ(gradient_reads(add_mv(2, 3), "V"), "");
  EXPECT_EQ(gradient_reads(add_mv(2, 3), "A"), "X");
  EXPECT_EQ(gradient_reads(add_mv(2, 3), "X"), "A");
}

std::string error_with(int input, const Shape& shape) {
  Feeds feeds = feeds_for<float>({3, 5});
  feeds[input].second = normal<float>(shape);
  return error_of([&] { run_op_on(add_mv(), feeds); });
}

TEST(AddMV, BadShapesAreNamed) {
  EXPECT_NE(error_with(0, {5}).find("V is [5], but the product is [3]"), std::string::npos);
  EXPECT_NE(error_with(1, {5}).find("A is [5], but a matrix has two dimensions"), std::string::npos);
  EXPECT_NE(error_with(2, {5, 1}).find("X is [5, 1], but a vector has one dimension"), std::string::npos);
  EXPECT_NE(error_with(2, {3}).find("A [3, 5] has 5 columns, but X 3 elements"), std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::add_mv_test
