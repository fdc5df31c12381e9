// Ger against plain loops and central differences, and what its gradients read.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::ger_test {
namespace {

const OperatorDef kGer = make_op("Ger", {"X", "Y"}, {"Z"});

template <class T>
Feeds feeds_for(int64_t n, int64_t m) {
  return {{"X", normal<T>({n}, 1)}, {"Y", normal<T>({m}, 2)}};
}

Tensor naive(const Feeds& feeds) {
  const Tensor x = to_double(feeds[0].second), y = to_double(feeds[1].second);
  Tensor z = Tensor::empty(DType::float64, {x.size(), y.size()});
  for (int64_t i = 0; i < z.size(); ++i)
    z.data<double>()[i] = x.data<double>()[i / y.size()] * y.data<double>()[i % y.size()];
  return z;
}

const std::pair<int64_t, int64_t> kSizes[] = {{3, 5}, {1, 1}, {0, 4}, {4, 0}, {300, 70}};

TEST(Ger, ForwardIsTheFormula) {
  for (const auto& [n, m] : kSizes) {
    const Feeds feeds = feeds_for<double>(n, m), single = feeds_for<float>(n, m);
    EXPECT_EQ(compare(run_op_on(kGer, feeds)[0], naive(feeds), 0), "") << n;
    EXPECT_EQ(compare(run_op_on(kGer, single)[0], naive(single), 1e-6), "") << n;
  }
}

TEST(Ger, Gradients) {
  for (const auto& [n, m] : kSizes)
    if (n * m < 100) {
      EXPECT_EQ(check_gradient(kGer, feeds_for<double>(n, m), {"X", "Y"}), "") << n;
    }
}

TEST(Ger, EachGradientReadsTheOtherInputAlone) {
  EXPECT_EQ(gradient_reads(kGer, "X"), "Y");
  EXPECT_EQ(gradient_reads(kGer, "Y"), "X");
}

TEST(Ger, BadShapesAreNamed) {
  EXPECT_NE(error_of([] {
              run_op_on(kGer, {{"X", normal<float>({3})}, {"Y", normal<float>({2, 3})}});
            }).find("Y is [2, 3], but a vector has one dimension"),
            std::string::npos);
}

}  // namespace
}  // namespace stepnet::testing::ger_test
