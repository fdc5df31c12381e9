// The tape on a GPU: what it makes by itself is made where the variables are.
#include "core/placement.h"
#include "tests/gpu/gpu_test.h"
#include "tools/bench/tape/hessian.h"

namespace stepnet::testing {
namespace {

using autograd::Variable;

class GpuTape : public GpuTest {};

Variable leaf(const std::vector<float>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return Variable(on_device(Tensor::of<float>(shape, values)), true);
}

std::string compare_on_cpu(const Variable& is, const Variable& should, double tolerance) {
  EXPECT_EQ(is.value().device(), kGpu);
  return compare(available(is.value(), Device{}), available(should.value(), Device{}), tolerance);
}

TEST_F(GpuTape, BackwardStartsWhereTheRootIs) {
  Variable x = leaf({1, -2, 3});
  const Variable loss = autograd::run("SumElements", autograd::run("Sqr", {x}))[0];
  autograd::backward(loss);
  EXPECT_EQ(compare_on_cpu(x.grad().dense, leaf({2, -4, 6}), 0), "");
  Variable single = leaf({5});
  autograd::backward(single);
  EXPECT_EQ(compare_on_cpu(single.grad().dense, leaf({1}), 0), "");
}

TEST_F(GpuTape, ZerosAreWhereTheLeafIs) {
  const Variable x = leaf({1, -2}), unused = leaf({7, 8});
  const Variable loss = autograd::run("SumElements", {x})[0];
  const autograd::Gradients g = autograd::grad({loss}, {unused}, {.materialize = true});
  EXPECT_EQ(compare_on_cpu(g[0].dense, leaf({0, 0}), 0), "");
}

TEST_F(GpuTape, HessiansAndTheirGradientsAreTheCpus) {
  const bench::MlpSizes sizes{.layers = 3, .inputs = 2, .width = 5, .outputs = 1, .batch = 4};
  for (const bool trimmed : {true, false}) {
    const bench::Mlp<double> here(sizes, "Tanh"), there(sizes, "Tanh", kGpu);
    const bench::Hessian h = bench::hessian(here, {trimmed, true}), g = bench::hessian(there, {trimmed, true});
    EXPECT_EQ(compare_on_cpu(g.gradient, h.gradient, 1e-12), "");
    for (size_t i = 0; i < h.rows.size(); ++i) EXPECT_EQ(compare_on_cpu(g.rows[i], h.rows[i], 1e-12), "") << i;
    for (size_t k = 0; k < here.leaves().size(); ++k)
      EXPECT_EQ(compare_on_cpu(there.leaves()[k].grad().dense, here.leaves()[k].grad().dense, 1e-12), "") << k;
  }
}

}  // namespace
}  // namespace stepnet::testing
