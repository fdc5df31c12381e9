// MatMul against plain loops and central differences, transposed and flattened in every way.
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

}  // namespace
}  // namespace stepnet::testing::matmul_test
