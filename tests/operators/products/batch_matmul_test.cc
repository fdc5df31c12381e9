// BatchMatMul against plain loops and central differences.
#include "tests/operators/gradient_reads.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::batch_matmul_test {
namespace {

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

}  // namespace
}  // namespace stepnet::testing::batch_matmul_test
