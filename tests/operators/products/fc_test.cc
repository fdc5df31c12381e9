// FC and FCGradient against plain loops and central differences.
#include "tests/operators/op_test.h"

namespace stepnet::testing::fc_test {
namespace {

Tensor naive_fc(const Tensor& x, const Tensor& w, const Tensor& b, int64_t m, const Shape& out) {
  const int64_t n = b.size(), k = m > 0 ? x.size() / m : 0;
  Tensor y = Tensor::zeros(DType::float64, out);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = b.data<double>()[j];
      for (int64_t l = 0; l < k; ++l) sum += x.data<double>()[i * k + l] * w.data<double>()[j * k + l];
      y.data<double>()[i * n + j] = sum;
    }
  return y;
}

OperatorDef fc(int axis = 1, int axis_w = 1) {
  return make_op("FC", {"X", "W", "b"}, {"Y"}, {make_arg("axis", axis), make_arg("axis_w", axis_w)});
}

TEST(Fc, ForwardIsTheProductPlusBias) {
  const Tensor x = normal<double>({3, 5}, 1), w = normal<double>({4, 5}, 2), b = normal<double>({4}, 3);
  EXPECT_EQ(compare(run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 3, {3, 4}), 1e-14), "");
}

TEST(Fc, FloatIsCloseToDouble) {
  const Tensor x = normal<float>({40, 33}, 1), w = normal<float>({17, 33}, 2), b = normal<float>({17}, 3);
  const Tensor y = run_op_on(fc(), {{"X", x}, {"W", w}, {"b", b}})[0];
  EXPECT_EQ(y.dtype(), DType::float32);
  EXPECT_EQ(compare(y, naive_fc(to_double(x), to_double(w), to_double(b), 40, {40, 17}), 1e-5), "");
}

TEST(Fc, KeepsTheDimensionsBeforeTheAxis) {
  const Tensor w = normal<double>({4, 2, 3}, 2), b = normal<double>({4}, 3);
  const Tensor x = normal<double>({2, 5, 2, 3}, 1);
  EXPECT_EQ(compare(run_op_on(fc(2), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 10, {2, 5, 4}), 1e-14), "");
  EXPECT_EQ(compare(run_op_on(fc(-2), {{"X", x}, {"W", w}, {"b", b}})[0], naive_fc(x, w, b, 10, {2, 5, 4}), 1e-14), "");
  const Tensor row = normal<double>({6}, 4);
  EXPECT_EQ(compare(run_op_on(fc(0), {{"X", row}, {"W", w}, {"b", b}})[0], naive_fc(row, w, b, 1, {4}), 1e-14), "");
}

TEST(Fc, Gradients) {
  const Feeds feeds = {
      {"X", normal<double>({3, 5}, 1)}, {"W", normal<double>({4, 5}, 2)}, {"b", normal<double>({4}, 3)}};
  EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "");
  const Feeds deep = {
      {"X", normal<double>({2, 3, 2}, 1)}, {"W", normal<double>({2, 2, 2}, 2)}, {"b", normal<double>({4}, 3)}};
  EXPECT_EQ(check_gradient(fc(2, 2), deep, {"X", "W", "b"}), "");
}

TEST(Fc, GradientsOfGradients) {
  const OperatorDef def = make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db", "dX"}, {make_arg("axis", 2)});
  const Feeds feeds = {
      {"X", normal<double>({2, 3, 5}, 1)}, {"W", normal<double>({4, 5}, 2)}, {"dY", normal<double>({2, 3, 4}, 3)}};
  EXPECT_EQ(check_gradient(def, feeds, {"X", "W", "dY"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"dY"}, 1e-7, 1e-5, {"db"}), "");
  EXPECT_EQ(check_gradient(def, feeds, {"X", "dY"}, 1e-7, 1e-5, {"dW"}), "");
}

TEST(Fc, SizesOfZeroAndOne) {
  for (const int64_t m : {0, 1})
    for (const int64_t n : {0, 1})
      for (const int64_t k : {0, 1}) {
        const Tensor x = normal<double>({m, k}, 1), w = normal<double>({n, k}, 2), b = normal<double>({n}, 3);
        const Feeds feeds = {{"X", x}, {"W", w}, {"b", b}};
        EXPECT_EQ(compare(run_op_on(fc(), feeds)[0], naive_fc(x, w, b, m, {m, n}), 1e-14), "");
        EXPECT_EQ(check_gradient(fc(), feeds, {"X", "W", "b"}), "") << m << n << k;
      }
}

TEST(Fc, GradientComputesWhatIsAskedFor) {
  const Feeds feeds = {
      {"X", normal<double>({3, 5}, 1)}, {"W", normal<double>({4, 5}, 2)}, {"dY", normal<double>({3, 4}, 3)}};
  const auto all = run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db", "dX"}), feeds);
  const auto only_dx = run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"", "", "dX"}), feeds);
  EXPECT_FALSE(only_dx[0].defined());
  EXPECT_EQ(compare(only_dx[2], all[2], 0), "");
  EXPECT_EQ(compare(run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db"}), feeds)[0], all[0], 0), "");
}

TEST(Fc, BadShapesAreNamed) {
  const Tensor x = normal<double>({3, 5}), w = normal<double>({4, 6}), b = normal<double>({4});
  auto error = [](const Tensor& x, const Tensor& w, const Tensor& b, int axis) {
    return error_of([&] { run_op_on(fc(axis), {{"X", x}, {"W", w}, {"b", b}}); });
  };
  EXPECT_NE(error(x, w, b, 1).find("X [3, 5] has rows of 5 values from axis 1 on, but W [4, 6] takes rows of 6"),
            std::string::npos);
  EXPECT_NE(error(normal<double>({3, 6}), w, normal<double>({5}), 1)
                .find("b is [5], but W [4, 6] gives 4 outputs, so b must be [4]"),
            std::string::npos);
  EXPECT_NE(error(x, w, b, 2).find('2'), std::string::npos);
  const std::string gradient = error_of([&] {
    run_op_on(make_op("FCGradient", {"X", "W", "dY"}, {"dW", "db", "dX"}),
              {{"X", normal<double>({3, 6})}, {"W", w}, {"dY", normal<double>({4, 4})}});
  });
  EXPECT_NE(gradient.find("dY is [4, 4], but X [3, 6] and W [4, 6] give an output of [3, 4]"), std::string::npos)
      << gradient;
}

}  // namespace
}  // namespace stepnet::testing::fc_test
