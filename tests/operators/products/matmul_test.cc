// Products of matrices against plain loops and central differences.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::matmul_test {
namespace {

OperatorDef matmul_op(bool trans_a, bool trans_b, int axis_a = 1, int axis_b = 1) {
  return make_op("MatMul", {"A", "B"}, {"Y"},
                 {make_arg("trans_a", trans_a), make_arg("trans_b", trans_b), make_arg("axis_a", axis_a),
                  make_arg("axis_b", axis_b)});
}

Tensor naive(const Tensor& a, const Tensor& b, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b) {
  Tensor y = Tensor::zeros(DType::float64, {m, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        y.data<double>()[i * n + j] +=
            a.data<double>()[trans_a ? l * m + i : i * k + l] * b.data<double>()[trans_b ? j * k + l : l * n + j];
  return y;
}

TEST(MatMul, ForwardAndGradientsOfAllFourForms) {
  for (const int64_t k : {3, 1, 0})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const Tensor a = normal<double>(ta ? Shape{k, 2} : Shape{2, k}, 1);
        const Tensor b = normal<double>(tb ? Shape{4, k} : Shape{k, 4}, 2);
        const Feeds feeds = {{"A", a}, {"B", b}};
        EXPECT_EQ(compare(run_op_on(matmul_op(ta, tb), feeds)[0], naive(a, b, 2, 4, k, ta, tb), 1e-14), "");
        EXPECT_EQ(check_gradient(matmul_op(ta, tb), feeds, {"A", "B"}), "") << k << ta << tb;
      }
}

TEST(MatMul, OtherAxes) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const Feeds feeds = {{"A", normal<double>(ta ? Shape{3, 2, 4} : Shape{2, 2, 6}, 1)},
                           {"B", normal<double>(tb ? Shape{5, 1, 6} : Shape{6, 5, 1}, 2)}};
      const OperatorDef def = matmul_op(ta, tb, 2, 1);
      EXPECT_EQ(run_op_on(def, feeds)[0].shape(), (Shape{4, 5}));
      EXPECT_EQ(check_gradient(def, feeds, {"A", "B"}), "") << ta << tb;
    }
}

TEST(MatMul, AShapeCanBeGivenAndDifferentiated) {
  OperatorDef def = matmul_op(false, false);
  def.add_input("S");
  *def.add_arg() = make_arg("axis_y", 2);
  const Feeds feeds = {
      {"A", normal<double>({6, 4}, 1)}, {"B", normal<double>({4, 5}, 2)}, {"S", normal<float>({2, 3, 5})}};
  EXPECT_EQ(run_op_on(def, feeds)[0].shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(check_gradient(def, feeds, {"A", "B"}), "");
}

TEST(MatMul, BadShapesAreNamed) {
  const std::string text = error_of([] {
    run_op_on(matmul_op(false, true), {{"A", normal<float>({2, 3})}, {"B", normal<float>({3, 4})}});
  });
  EXPECT_NE(
      text.find("A [2, 3] is a matrix of [2, 3] and B [3, 4] transposed of [4, 3], so A has 3 columns but B 4 rows"),
      std::string::npos)
      << text;
}

struct Case {
  Shape a, b, y;
  bool trans_a = false, trans_b = false, broadcast = false;
};

OperatorDef product(const Case& c) {
  return make_op("BatchMatMul", {"A", "B"}, {"Y"},
                 {make_arg("trans_a", c.trans_a), make_arg("trans_b", c.trans_b), make_arg("broadcast", c.broadcast)});
}

const Case kCases[] = {
    {{2, 3, 4}, {2, 4, 5}, {2, 3, 5}},
    {{2, 4, 3}, {2, 4, 5}, {2, 3, 5}, true, false},
    {{2, 3, 4}, {2, 5, 4}, {2, 3, 5}, false, true},
    {{2, 4, 3}, {2, 5, 4}, {2, 3, 5}, true, true},
    {{3, 4}, {4, 2}, {3, 2}},
    {{2, 2, 3, 4}, {2, 2, 4, 1}, {2, 2, 3, 1}},
    {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {{0, 3, 4}, {0, 4, 2}, {0, 3, 2}},
    {{2, 3, 0}, {2, 0, 2}, {2, 3, 2}},
    {{3, 2, 4}, {4, 5}, {3, 2, 5}, false, false, true},
    {{2, 4}, {3, 4, 5}, {3, 2, 5}, false, false, true},
    {{2, 4}, {1, 4, 5}, {1, 2, 5}, false, false, true},
    {{3, 1, 2, 4}, {2, 5, 4}, {3, 2, 2, 5}, false, true, true},
    {{1, 4, 2}, {3, 4, 5}, {3, 2, 5}, true, false, true},
};

// The element of a batch of matrices; a batch index counts modulo the operand's own dimensions.
double at(const Tensor& t, const Shape& batch, int64_t index, int64_t row, int64_t column) {
  const Shape& shape = t.shape();
  int64_t offset = 0, stride = 1;
  for (int i = 1; i <= batch.rank(); ++i) {
    const int64_t place = index % batch[batch.rank() - i];
    index /= batch[batch.rank() - i];
    if (i > shape.rank() - 2) continue;
    const int64_t size = shape.at(-2 - i);
    offset += (size == 1 ? 0 : place) * stride;
    stride *= size;
  }
  return t.data<double>()[(offset * shape.at(-2) + row) * shape.at(-1) + column];
}

Tensor naive(const Case& c, const Tensor& a, const Tensor& b) {
  Tensor y = Tensor::zeros(DType::float64, c.y);
  const Shape batch(c.y.dims().first(c.y.rank() - 2));
  const int64_t m = c.y.at(-2), n = c.y.at(-1), k = c.trans_a ? c.a.at(-2) : c.a.at(-1);
  for (int64_t e = 0; e < y.size(); ++e)
    for (int64_t p = 0; p < k; ++p) {
      const int64_t i = e / n % m, j = e % n, index = e / (m * n);
      y.data<double>()[e] += (c.trans_a ? at(a, batch, index, p, i) : at(a, batch, index, i, p)) *
                             (c.trans_b ? at(b, batch, index, j, p) : at(b, batch, index, p, j));
    }
  return y;
}

TEST(BatchMatMul, ForwardIsTheFormula) {
  for (const Case& c : kCases) {
    const Tensor a = normal<double>(c.a, 1), b = normal<double>(c.b, 2);
    EXPECT_EQ(compare(run_op_on(product(c), {{"A", a}, {"B", b}})[0], naive(c, a, b), 1e-14), "")
        << c.a.str() << c.b.str();
    const Tensor fa = normal<float>(c.a, 1), fb = normal<float>(c.b, 2);
    EXPECT_EQ(compare(run_op_on(product(c), {{"A", fa}, {"B", fb}})[0], naive(c, to_double(fa), to_double(fb)), 1e-6),
              "");
  }
}

TEST(BatchMatMul, Gradients) {
  for (const Case& c : kCases)
    EXPECT_EQ(check_gradient(product(c), {{"A", normal<double>(c.a, 1)}, {"B", normal<double>(c.b, 2)}}, {"A", "B"}),
              "")
        << c.a.str() << c.b.str();
}

TEST(BatchMatMul, BadShapesAreNamed) {
  auto error = [](const Shape& a, const Shape& b, bool broadcast) {
    const Case c{a, b, {}, false, false, broadcast};
    return error_of([&] { run_op_on(product(c), {{"A", normal<float>(a)}, {"B", normal<float>(b)}}); });
  };
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(error({2, 3, 4}, {2, 5, 6}, false), "A [2, 3, 4] has 4 columns, but B [2, 5, 6] has 5 rows"));
  EXPECT_TRUE(has(error({2, 3, 4}, {4, 6}, false), "without broadcast: 1 these must be equal"));
  EXPECT_TRUE(has(error({2, 3, 4}, {3, 4, 6}, true), "cannot be broadcast together: 2 against 3"));
  EXPECT_TRUE(has(error({4}, {4, 6}, true), "A is [4], but a matrix has two dimensions"));
}

TEST(BatchMatMul, EachGradientReadsTheOtherOperandAlone) {
  for (const bool trans : {false, true})
    for (const bool broadcast : {false, true}) {
      const OperatorDef def =
          make_op("BatchMatMul", {"A", "B"}, {"Y"}, {make_arg("trans_a", trans), make_arg("broadcast", broadcast)});
      EXPECT_EQ(gradient_reads(def, "A"), "B");
      EXPECT_EQ(gradient_reads(def, "B"), "A");
    }
}

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
}  // namespace stepnet::testing::matmul_test
