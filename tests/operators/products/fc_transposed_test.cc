// FCTransposed and its gradients against FC with the weights the other way round, and central differences.
#include "tests/operators/op_test.h"

namespace stepnet::testing::fc_transposed_test {
namespace {

OperatorDef fc(int axis = 1, int axis_w = 1) {
  return make_op("FCTransposed", {"X", "W", "b"}, {"Y"}, {make_arg("axis", axis), make_arg("axis_w", axis_w)});
}

OperatorDef gradient(const std::vector<std::string>& outputs, const std::vector<Argument>& args = {}) {
  return make_op("FCTransposedGradient", {"X", "W", "dY"}, outputs, args);
}

Tensor naive_fc(const Tensor& x, const Tensor& w, const Tensor& b, int64_t m, const Shape& out) {
  const int64_t n = b.size(), k = m > 0 ? x.size() / m : 0;
  Tensor y = Tensor::zeros(DType::float64, out);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = b.data<double>()[j];
      for (int64_t l = 0; l < k; ++l) sum += x.data<double>()[i * k + l] * w.data<double>()[l * n + j];
      y.data<double>()[i * n + j] = sum;
    }
  return y;
}

TEST(FcTransposed, ForwardIsTheProductPlusBias) {
  const Tensor x = normal<double>({3, 5}, 1), w = normal<double>({5, 4}, 2), b = normal<double>({4}, 3);
  EXPECT_EQ(compare(run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 3, {3, 4}), 1e-14), "");
}

TEST(FcTransposed, FloatIsCloseToDouble) {
  const Tensor x = normal<float>({40, 33}, 1), w = normal<float>({33, 17}, 2), b = normal<float>({17}, 3);
  const Tensor y = run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0];
  EXPECT_EQ(compare(y, naive_fc(to_double(x), to_double(w), to_double(b), 40, {40, 17}), 1e-5), "");
}

TEST(FcTransposed, FlattensAtTheAxes) {
  const Tensor x = normal<double>({2, 5, 2, 3}, 1), w = normal<double>({2, 3, 4}, 2), b = normal<double>({4}, 3);
  EXPECT_EQ(compare(run_op_on(fc(2, 2), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 10, {2, 5, 4}), 1e-14),
            "");
}

TEST(FcTransposed, Gradients) {
  const Feeds feeds = {
      {"X", normal<double>({3, 5}, 1)}, {"W", normal<double>({5, 4}, 2)}, {"b", normal<double>({4}, 3)}};
  EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "");
  const Feeds deep = {
      {"X", normal<double>({2, 3, 2, 2}, 1)}, {"W", normal<double>({2, 2, 3}, 2)}, {"b", normal<double>({3}, 3)}};
  EXPECT_EQ(check_gradient(fc(2, 2), deep, {"X", "W", "b"}), "");
}

TEST(FcTransposed, GradientsOfGradients) {
  const OperatorDef def = gradient({"dW", "db", "dX"}, {make_arg("axis", 2)});
  const Feeds feeds = {
      {"X", normal<double>({2, 3, 5}, 1)}, {"W", normal<double>({5, 4}, 2)}, {"dY", normal<double>({2, 3, 4}, 3)}};
  EXPECT_EQ(check_gradient(def, feeds, {"X", "W", "dY"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}, 1e-7, 1e-5, {"db"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"X", "dY"}, 1e-7, 1e-5, {"dW"}), "");
}

TEST(FcTransposed, SizesOfZeroAndOne) {
  for (const int64_t m : {0, 1})
    for (const int64_t n : {0, 1})
      for (const int64_t k : {0, 1}) {
        const Tensor x = normal<double>({m, k}, 1), w = normal<double>({k, n}, 2), b = normal<double>({n}, 3);
        const Feeds feeds = {{"X", x}, {"W", w}, {"b", b}};
        EXPECT_EQ(compare(run_op_on(fc(), feeds)[0], naive_fc(x, w, b, m, {m, n}), 1e-14), "");
        EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "") << m << n << k;
      }
}

TEST(FcTransposed, BadShapesAreNamed) {
  const Tensor x = normal<double>({3, 5}), w = normal<double>({6, 4}), b = normal<double>({4});
  auto error = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return error_of([&] { run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}}); });
  };
  EXPECT_NE(error(x, w, b).find("X [3, 5] has rows of 5 values from axis 1 on, but W [6, 4] takes rows of 6"),
            std::string::npos);
  EXPECT_NE(error(normal<double>({3, 6}), w, normal<double>({5}))
                .find("b is [5], but W [6, 4] gives 4 outputs, so b must be [4]"),
            std::string::npos);
  const std::string text = error_of([&] {
    run_op_on(gradient({"dW", "db", "dX"}), {{"X", normal<double>({3, 6})}, {"W", w}, {"dY", normal<double>({4, 4})}});
  });
  EXPECT_NE(text.find("dY is [4, 4], but X [3, 6] and W [6, 4] give an output of [3, 4]"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepnet::testing::fc_transposed_test
