// Products added to a tensor against plain loops and central differences.
#include <limits>

#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::added_product_test {
namespace {

namespace of_add_mv {

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

}  // namespace of_add_mv

namespace of_add_r {

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

}  // namespace of_add_r

namespace of_ger {

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

}  // namespace of_ger

namespace of_add_bmm {

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

}  // namespace of_add_bmm

namespace of_badd_bmm {

struct Sizes {
  int64_t batch, rows, inner, columns;
};

const Sizes kSizes[] = {{2, 3, 4, 5}, {1, 1, 1, 1}, {0, 2, 3, 2}, {2, 0, 3, 2}, {2, 2, 0, 3}};

OperatorDef badd_bmm(float beta = 1, float alpha = 1) {
  return make_op("BAddBMM", {"M", "A", "B"}, {"Y"}, {make_arg("beta", beta), make_arg("alpha", alpha)});
}

template <class T>
Feeds feeds_for(const Sizes& s) {
  return {{"M", normal<T>({s.batch, s.rows, s.columns}, 1)},
          {"A", normal<T>({s.batch, s.rows, s.inner}, 2)},
          {"B", normal<T>({s.batch, s.inner, s.columns}, 3)}};
}

Tensor naive(const Sizes& s, const Feeds& feeds, double beta, double alpha) {
  Tensor y = to_double(feeds[0].second);
  const Tensor a = to_double(feeds[1].second), b = to_double(feeds[2].second);
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t i = 0; i < s.rows; ++i)
      for (int64_t j = 0; j < s.columns; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < s.inner; ++k)
          sum += a.data<double>()[(n * s.rows + i) * s.inner + k] * b.data<double>()[(n * s.inner + k) * s.columns + j];
        double& v = y.data<double>()[(n * s.rows + i) * s.columns + j];
        v = beta * v + alpha * sum;
      }
  return y;
}

TEST(BAddBMM, ForwardIsTheFormula) {
  for (const Sizes& s : kSizes) {
    const Feeds feeds = feeds_for<double>(s), single = feeds_for<float>(s);
    EXPECT_EQ(compare(run_op_on(badd_bmm(), feeds)[0], naive(s, feeds, 1, 1), 1e-14), "") << s.batch;
    EXPECT_EQ(compare(run_op_on(badd_bmm(-2, 0.5), feeds)[0], naive(s, feeds, -2, 0.5), 1e-14), "") << s.batch;
    EXPECT_EQ(compare(run_op_on(badd_bmm(), single)[0], naive(s, single, 1, 1), 1e-5), "") << s.batch;
  }
}

TEST(BAddBMM, WithABetaOfZeroMIsNotUsed) {
  Feeds feeds = feeds_for<double>(kSizes[0]);
  const Tensor expected = naive(kSizes[0], feeds, 0, 1);
  feeds[0].second.data<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(compare(run_op_on(badd_bmm(0), feeds)[0], expected, 1e-14), "");
}

TEST(BAddBMM, Gradients) {
  for (const Sizes& s : kSizes) {
    EXPECT_EQ(check_gradient(badd_bmm(), feeds_for<double>(s), {"M", "A", "B"}), "") << s.batch;
    EXPECT_EQ(check_gradient(badd_bmm(-2, 0.5), feeds_for<double>(s), {"M", "A", "B"}), "") << s.batch;
  }
}

TEST(BAddBMM, EachGradientReadsTheOtherFactorAlone) {
  EXPECT_EQ(gradient_reads(badd_bmm(2, 3), "M"), "");
  EXPECT_EQ(gradient_reads(badd_bmm(2, 3), "A"), "B");
  EXPECT_EQ(gradient_reads(badd_bmm(2, 3), "B"), "A");
}

std::string error_with(int input, const Shape& shape) {
  Feeds feeds = feeds_for<float>(kSizes[0]);
  feeds[input].second = normal<float>(shape);
  return error_of([&] { run_op_on(badd_bmm(), feeds); });
}

TEST(BAddBMM, BadShapesAreNamed) {
  EXPECT_NE(error_with(0, {5}).find("M is [5], but the product is [2, 3, 5]"), std::string::npos);
  EXPECT_NE(error_with(1, {3, 4}).find("A is [3, 4], but a batch of matrices has three dimensions"), std::string::npos);
  EXPECT_NE(error_with(2, {3, 4, 5}).find("A [2, 3, 4] has 2 matrices, but B [3, 4, 5] has 3"), std::string::npos);
  EXPECT_NE(
      error_with(2, {2, 3, 5}).find("matrices of A [2, 3, 4] have 4 columns, but those of B [2, 3, 5] have 3 rows"),
      std::string::npos);
}

TEST(BAddBMM, NotInPlace) {
  EXPECT_NE(error_of([] {
              run_op_on(make_op("BAddBMM", {"M", "A", "B"}, {"M"}), feeds_for<float>(kSizes[0]));
            }).find("output \"Y\" cannot have the name of the input \"M\""),
            std::string::npos);
}

}  // namespace of_badd_bmm

}  // namespace
}  // namespace stepnet::testing::added_product_test
