// Second derivatives of nets of fully connected layers: values, and exactly how many matrix products they take.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "stepnet/matmul.h"
#include "tests/core/autograd/tape_testing.h"
#include "tests/operators/op_test.h"
#include "tools/bench/tape/hessian.h"

namespace stepnet::autograd::testing::hessian_test {
namespace {

using bench::Hessian;
using bench::HessianKind;
using bench::Mlp;
using bench::MlpSizes;
using bench::ProductCount;
using stepnet::testing::normal;

ProductCount products_of(const std::function<void()>& fn) {
  count_matmuls(true);
  const MatmulCounters before = matmul_counters();
  fn();
  const MatmulCounters after = matmul_counters();
  count_matmuls(false);
  return {after.calls - before.calls, after.flops - before.flops};
}

void expect_products(const MlpSizes& sizes, HessianKind kind, const std::string& activation) {
  const Mlp<double> net(sizes, activation);
  const ProductCount is = products_of([&] { bench::hessian(net, kind); }),
                     should = expected_products(sizes, kind, activation != "Relu");
  EXPECT_EQ(is.calls, should.calls) << sizes.layers << " layers, " << sizes.inputs << " inputs, " << activation
                                    << (kind.trimmed ? ", trimmed" : "") << (kind.with_backward ? ", backward" : "");
  EXPECT_EQ(is.flops, should.flops) << sizes.layers << " layers, " << sizes.inputs << " inputs, " << activation;
}

TEST(Hessian, TakesAsManyProductsAsTheFormulasSay) {
  for (const int64_t layers : {1, 2, 3, 7})
    for (const int64_t inputs : {1, 2, 3, 10})
      for (const bool trimmed : {true, false}) {
        const MlpSizes sizes{.layers = layers, .inputs = inputs, .width = 4, .outputs = 1, .batch = 3};
        if (layers > 1) expect_products(sizes, {trimmed, false}, "Relu");
        if (layers > 1) expect_products(sizes, {trimmed, false}, "Tanh");
        if (layers > 1) expect_products(sizes, {trimmed, true}, "Relu");
      }
}

TEST(Hessian, OfSixHiddenLayersAndThreeInputs) {
  const MlpSizes sizes{.layers = 7, .inputs = 3, .width = 5, .outputs = 2, .batch = 4};
  const Mlp<float> net(sizes, "Relu");
  EXPECT_EQ(products_of([&] { bench::hessian(net, {true, false}); }).calls, 14);
  EXPECT_EQ(products_of([&] { bench::hessian(net, {false, false}); }).calls, 60);
  EXPECT_EQ(products_of([&] { bench::hessian(net, {true, true}); }).calls, 28);
  EXPECT_EQ(products_of([&] { bench::hessian(net, {false, true}); }).calls, 74);
  const Mlp<float> curved(sizes, "Tanh");
  EXPECT_EQ(products_of([&] { bench::hessian(curved, {true, false}); }).calls, 50);
  EXPECT_EQ(products_of([&] { bench::hessian(curved, {false, false}); }).calls, 96);
}

TEST(Hessian, IsThatOfCentralDifferences) {
  const MlpSizes sizes{.layers = 4, .inputs = 3, .width = 6, .outputs = 1, .batch = 5};
  const Mlp<double> net(sizes, "Tanh");
  constexpr double kStep = 1e-5;
  for (const bool trimmed : {true, false}) {
    const Hessian h = bench::hessian(net, {trimmed, false});
    double largest = 0;
    for (int64_t i = 0; i < sizes.inputs; ++i) {
      const Numbers up = bench::gradient_at(net, i, kStep), down = bench::gradient_at(net, i, -kStep),
                    row = values_of(h.rows[i]);
      for (size_t k = 0; k < row.size(); ++k) {
        EXPECT_NEAR(row[k], (up[k] - down[k]) / (2 * kStep), 1e-8);
        largest = std::max(largest, std::abs(row[k]));
      }
    }
    EXPECT_GT(largest, 0.01);
  }
}

// The loss that a step with a backward pass has: the squares of the value and of all rows.
double loss_of(const Mlp<double>& net, bool trimmed) {
  const Hessian h = bench::hessian(net, {trimmed, false});
  double loss = 0;
  for (const double v : values_of(h.value)) loss += v * v;
  for (const Variable& row : h.rows)
    for (const double v : values_of(row)) loss += v * v;
  return loss;
}

// With a backward pass: third derivatives, by the input and every parameter.
TEST(Hessian, GradientsOfALossOnItAreCentralDifferences) {
  const MlpSizes sizes{.layers = 3, .inputs = 2, .width = 4, .outputs = 1, .batch = 3};
  constexpr double kStep = 1e-5;
  for (const bool trimmed : {true, false})
    for (const char* activation : {"Tanh", "Relu"}) {
      const Mlp<double> net(sizes, activation);
      bench::hessian(net, {trimmed, true});
      for (Variable& leaf : net.leaves()) {
        const Numbers g = grad_of(leaf);
        const auto values = leaf.unchecked_value().span<double>();
        ASSERT_EQ(g.size(), values.size());
        for (size_t k = 0; k < g.size(); ++k) {
          const double at = values[k];
          values[k] = at + kStep;
          const double up = loss_of(net, trimmed);
          values[k] = at - kStep;
          const double down = loss_of(net, trimmed);
          values[k] = at;
          EXPECT_NEAR(g[k], (up - down) / (2 * kStep), 1e-6 * std::max(1.0, std::abs(g[k]))) << activation;
        }
      }
    }
}

TEST(Hessian, OfPiecewiseLinearLayersIsZero) {
  const MlpSizes sizes{.layers = 3, .inputs = 2, .width = 4, .outputs = 1, .batch = 3};
  for (const char* activation : {"Relu", "LeakyRelu"})
    for (const Variable& row : bench::hessian(Mlp<double>(sizes, activation), {}).rows)
      EXPECT_EQ(values_of(row), Numbers(6, 0.0)) << activation;
}

struct TwoGradients {
  int64_t products = 0;
  int bias_sums = 0;
};

// linear, pow, and two gradients.
TwoGradients run_two_gradients(bool trimmed) {
  const Variable x(normal<double>({4, 3}), true), w(normal<double>({2, 3}), true), b(normal<double>({2}), true);
  const std::vector<Variable> wanted = trimmed ? std::vector<Variable>{x} : std::vector<Variable>{x, w, b};
  TwoGradients result;
  result.products = products_of([&] {
                      const Variable linear = apply("FC", {x, w, b});
                      linear.grad_fn()->register_post_hook([&](const Gradients& computed, const Gradients&) {
                        result.bias_sums += int{computed[2].defined()};
                        return Gradients{};
                      });
                      const Variable y = run("Pow", {linear}, {make_arg("exponent", 2.0F)})[0];
                      const Variable g = grad({sum_of(y)}, wanted, {.create_graph = true})[0].dense;
                      grad({sum_of(g)}, wanted);
                    }).calls;
  return result;
}

TEST(Hessian, OfASquaredLayerRunsOnlyWhatIsAskedFor) {
  const TwoGradients trimmed = run_two_gradients(true), untrimmed = run_two_gradients(false);
  EXPECT_EQ(trimmed.products, 4);
  EXPECT_EQ(trimmed.bias_sums, 0);
  EXPECT_EQ(untrimmed.products, 7);
  EXPECT_EQ(untrimmed.bias_sums, 2);
}

}  // namespace
}  // namespace stepnet::autograd::testing::hessian_test
