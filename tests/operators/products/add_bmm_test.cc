// AddBMM against plain loops and central differences, and what its gradients read.
#include <limits>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::add_bmm_test {
namespace {

struct Sizes {
  int64_t batch, rows, inner, columns;
};

const Sizes kSizes[] = {{2, 3, 4, 5}, {1, 1, 1, 1}, {0, 2, 3, 2}, {2, 0, 3, 2}, {2, 2, 0, 3}};

OperatorDef add_bmm(float beta = 1, float alpha = 1) {
  return make_op("AddBMM", {"M", "A", "B"}, {"Y"}, {make_arg("beta", beta), make_arg("alpha", alpha)});
}

template <class T>
Feeds feeds_for(const Sizes& s) {
  return {{"M", normal<T>({s.rows, s.columns}, 1)},
          {"A", normal<T>({s.batch, s.rows, s.inner}, 2)},
          {"B", normal<T>({s.batch, s.inner, s.columns}, 3)}};
}

Tensor naive(const Sizes& s, const Feeds& feeds, double beta, double alpha) {
  Tensor y = to_double(feeds[0].second);
  const Tensor a = to_double(feeds[1].second), b = to_double(feeds[2].second);
  for (int64_t i = 0; i < s.rows; ++i)
    for (int64_t j = 0; j < s.columns; ++j) {
      double sum = 0;
      for (int64_t n = 0; n < s.batch; ++n)
        for (int64_t k = 0; k < s.inner; ++k)
          sum += a.data<double>()[(n * s.rows + i) * s.inner + k] * b.data<double>()[(n * s.inner + k) * s.columns + j];
      double& v = y.data<double>()[i * s.columns + j];
      v = beta * v + alpha * sum;
    }
  return y;
}

TEST(AddBMM, ForwardIsTheFormula) {
  for (const Sizes& s : kSizes) {
    const Feeds feeds = feeds_for<double>(s), single = feeds_for<float>(s);
    EXPECT_EQ(compare(run_op_on(add_bmm(), feeds)[0], naive(s, feeds, 1, 1), 1e-14), "") << s.batch;
    EXPECT_EQ(compare(run_op_on(add_bmm(-2, 0.5), feeds)[0], naive(s, feeds, -2, 0.5), 1e-14), "") << s.batch;
    EXPECT_EQ(compare(run_op_on(add_bmm(), single)[0], naive(s, single, 1, 1), 1e-5), "") << s.batch;
  }
}

TEST(AddBMM, WithABetaOfZeroMIsNotUsed) {
  Feeds feeds = feeds_for<double>(kSizes[0]);
  const Tensor expected = naive(kSizes[0], feeds, 0, 1);
  feeds[0].second.data<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(compare(run_op_on(add_bmm(0), feeds)[0], expected, 1e-14), "");
}

TEST(AddBMM, Gradients) {
  for (const Sizes& s : kSizes) {
    EXPECT_EQ(check_gradient(add_bmm(), feeds_for<double>(s), {"M", "A", "B"}), "") << s.batch;
    EXPECT_EQ(check_gradient(add_bmm(-2, 0.5), feeds_for<double>(s), {"M", "A", "B"}), "") << s.batch;
  }
}

TEST(AddBMM, EachGradientReadsTheOtherFactorAlone) {
  EXPECT_EQ(gradient_reads(add_bmm(2, 3), "M"), "");
  EXPECT_EQ(gradient_reads(add_bmm(2, 3), "A"), "B");
  EXPECT_EQ(gradient_reads(add_bmm(2, 3), "B"), "A");
}

std::string error_with(int input, const Shape& shape) {
  Feeds feeds = feeds_for<float>(kSizes[0]);
  feeds[input].second = normal<float>(shape);
  return error_of([&] { run_op_on(add_bmm(), feeds); });
}

TEST(AddBMM, BadShapesAreNamed) {
  EXPECT_NE(error_with(0, {5}).find("M is [5], but the product is [3, 5]"), std::string::npos);
  EXPECT_NE(error_with(1, {3, 4}).find("A is [3, 4], but a batch of matrices has three dimensions"), std::string::npos);
  EXPECT_NE(error_with(2, {3, 4, 5}).find("A [2, 3, 4] has 2 matrices, but B [3, 4, 5] has 3"), std::string::npos);
  EXPECT_NE(
      error_with(2, {2, 3, 5}).find("matrices of A [2, 3, 4] have 4 columns, but those of B [2, 3, 5] have 3 rows"),
      std::string::npos);
}

TEST(AddBMM, NotInPlace) {
  EXPECT_NE(error_of([] {
              run_op_on(make_op("AddBMM", {"M", "A", "B"}, {"M"}), feeds_for<float>(kSizes[0]));
            }).find("output \"Y\" cannot have the name of the input \"M\""),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::add_bmm_test
