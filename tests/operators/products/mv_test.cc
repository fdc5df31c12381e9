// MV against plain loops and central differences, and what its gradients read.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::mv_test {
namespace {

OperatorDef mv(bool trans) { return make_op("MV", {"A", "X"}, {"Y"}, {make_arg("trans", trans)}); }

template <class T>
Feeds feeds_for(const Shape& a, bool trans) {
  return {{"A", normal<T>(a, 1)}, {"X", normal<T>({a[trans ? 0 : 1]}, 2)}};
}

Tensor naive(const Feeds& feeds, bool trans) {
  const Tensor a = to_double(feeds[0].second), x = to_double(feeds[1].second);
  Tensor y = Tensor::zeros(DType::float64, {a.dim(trans ? 1 : 0)});
  for (int64_t i = 0; i < a.dim(0); ++i)
    for (int64_t j = 0; j < a.dim(1); ++j)
      y.data<double>()[trans ? j : i] += a.data<double>()[i * a.dim(1) + j] * x.data<double>()[trans ? i : j];
  return y;
}

const Shape kMatrices[] = {{3, 5}, {1, 1}, {0, 4}, {4, 0}, {70, 33}};

TEST(MV, ForwardIsTheFormula) {
  for (const Shape& a : kMatrices)
    for (const bool trans : {false, true}) {
      const Feeds feeds = feeds_for<double>(a, trans), single = feeds_for<float>(a, trans);
      EXPECT_EQ(compare(run_op_on(mv(trans), feeds)[0], naive(feeds, trans), 1e-13), "") << a.str();
      EXPECT_EQ(compare(run_op_on(mv(trans), single)[0], naive(single, trans), 1e-5), "") << a.str();
    }
}

TEST(MV, Gradients) {
  for (const Shape& a : {Shape{3, 5}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}})
    for (const bool trans : {false, true})
      EXPECT_EQ(check_gradient(mv(trans), feeds_for<double>(a, trans), {"A", "X"}), "") << a.str();
}

TEST(MV, EachGradientReadsTheOtherInputAlone) {
  for (const bool trans : {false, true}) {
    EXPECT_EQ(gradient_reads(mv(trans), "A"), "X");
    EXPECT_EQ(gradient_reads(mv(trans), "X"), "A");
  }
}

std::string error_with(const Shape& a, const Shape& x, bool trans = false) {
  return error_of([&] { run_op_on(mv(trans), {{"A", normal<float>(a)}, {"X", normal<float>(x)}}); });
}

TEST(MV, BadShapesAreNamed) {
  EXPECT_NE(error_with({3}, {3}).find("A is [3], but a matrix has two dimensions"), std::string::npos);
  EXPECT_NE(error_with({3, 2}, {2, 1}).find("X is [2, 1], but a vector has one dimension"), std::string::npos);
  EXPECT_NE(error_with({3, 2}, {3}).find("A [3, 2] has 2 columns, but X 3 elements"), std::string::npos);
  EXPECT_NE(error_with({3, 2}, {2}, true).find("A [3, 2] transposed has 3 columns, but X 2 elements"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::mv_test
