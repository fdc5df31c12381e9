// The tape on a GPU: what it makes by itself is made where the variables are.
#include "gpu/runtime/stream.h"
#include "stepnet/function.h"
#include "stepnet/tensor.h"
#include "tests/gpu/gpu_test.h"
#include "tools/bench/tape/hessian.h"

namespace stepnet::testing::tape_test {
namespace {

using autograd::Variable;

class GpuTape : public GpuTest {};

Variable leaf(const std::vector<float>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return Variable(on_gpu(Tensor::of<float>(shape, values)), true);
}

std::string compare_on_cpu(const Variable& is, const Variable& should, double tolerance) {
  EXPECT_EQ(is.value().device(), kGpu);
  return compare(copied_to(is.value(), Device{}), copied_to(should.value(), Device{}), tolerance);
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

// The second gradient is added to the first on the caller's stream, behind the stream that makes it.
TEST_F(GpuTape, LeavesAddOnTheCallersStream) {
  static const gpu::Stream &side = *new gpu::Stream, &caller = *new gpu::Stream;
  for (const int threads : {1, 2}) {
    const gpu::StreamScope here(0, caller.get());
    Variable x = leaf({1, -2, 3}), w = leaf({2, 2, 2});
    for (int pass = 0; pass < 3; ++pass) {
      Variable loss;
      {
        const gpu::StreamScope there(0, side.get());
        loss = autograd::run("SumElements", autograd::run("Mul", {autograd::run("Sqr", {x})[0], w}))[0];
      }
      autograd::backward(loss, {.threads = threads});
    }
    EXPECT_EQ(compare_on_cpu(x.grad().dense, leaf({12, -24, 36}), 0), "") << threads;
    EXPECT_EQ(compare_on_cpu(w.grad().dense, leaf({3, 12, 27}), 0), "") << threads;
  }
}

TEST_F(GpuTape, ZerosForAbsentGradientsAreWhereTheOutputsAre) {
  const autograd::Function halves(
      {.name = "Halves",
       .forward =
           [](autograd::FunctionCall& call) {
             const Variable& v = call.inputs()[0];
             return std::vector<Variable>{autograd::run("Scale", {v})[0], autograd::run("Sqr", {v})[0]};
           },
       .backward =
           [](autograd::FunctionRun&, const autograd::Gradients& g) {
             EXPECT_EQ(g[1].dense.value().device(), kGpu);
             return autograd::Gradients{autograd::run("Add", {g[0].dense, g[1].dense})[0]};
           },
       .zeros_for_absent = true});
  Variable x = leaf({1, -2});
  autograd::backward(autograd::run("SumElements", {halves({x})[0]})[0]);
  EXPECT_EQ(compare_on_cpu(x.grad().dense, leaf({1, 1}), 0), "");
}

// The bytes on the GPU that `sum((x + 2) * m)` holds beyond those of `sum(x)`.
int64_t held_by_dropout(bool mask_is_trained) {
  const auto zeros = [](const Shape& shape, bool trained) {
    return Variable(on_gpu(Tensor::zeros(DType::float32, shape)), trained);
  };
  const auto sum = [](const Variable& v) { return autograd::run("SumElements", {v})[0]; };
  const auto broadcast = [](const char* type, const Variable& a, const Variable& b) {
    return autograd::run(type, {a, b}, {make_arg("broadcast", 1)})[0];
  };
  const Variable x = zeros({2, 3, 16, 16}, true), m = zeros({1, 3, 1, 1}, mask_is_trained), two = zeros({1}, false);
  Variable z = sum(x);
  const int64_t before = allocator(kGpu).counters().live;
  z = sum(broadcast("Mul", broadcast("Add", x, two), m));
  return allocator(kGpu).counters().live - before;
}

TEST_F(GpuTape, FreesWhatOnlyTheGradientOfAConstantWouldRead) {
  held_by_dropout(false);  // what kernels make and keep is there from now on
  EXPECT_EQ(held_by_dropout(false), 0);
  EXPECT_EQ(held_by_dropout(true), 2 * 3 * 16 * 16 * 4);
}

// Of an input that is copied to another device, the tape keeps where it was.
TEST_F(GpuTape, ACopyToTheDeviceOfAnotherKeepsNoBytes) {
  for (const Device from : {kGpu, Device{}}) {
    const Device to = from == kGpu ? Device{} : kGpu;
    const Tensor values = Tensor::of<float>({2}, {3, -4});
    Variable w(on_device(values, from), true);
    const Variable like(Tensor::zeros(DType::float32, {1}, to));
    const Variable x = autograd::run("Scale", {w}, {make_arg("scale", 0.5F)})[0];
    const int64_t before = allocator(kGpu).counters().live + allocator(Device{}).counters().live;
    const Variable y = autograd::run("CopyOnDeviceLike", {x, like})[0];
    const int64_t held = allocator(kGpu).counters().live + allocator(Device{}).counters().live - before;
    EXPECT_EQ(held, static_cast<int64_t>(block_bytes(to.kind, 8)));  // the copy
    EXPECT_EQ(y.value().device(), to);
    // Of second order, so that the gradient's own copy is differentiated.
    const Variable square = autograd::run("SumElements", {autograd::run("Cube", {y})[0]})[0];
    const Variable slope = autograd::grad({square}, {w}, {.create_graph = true})[0].dense;
    EXPECT_EQ(slope.value().device(), from);
    EXPECT_EQ(compare(on_device(slope.value(), {}), Tensor::of<float>({2}, {3.375F, 6}), 1e-6), "");
    autograd::backward(autograd::run("SumElements", {slope})[0]);
    EXPECT_EQ(w.grad().dense.value().device(), from);
    EXPECT_EQ(compare(on_device(w.grad().dense.value(), {}), Tensor::of<float>({2}, {2.25F, -3}), 1e-6), "");
  }
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
}  // namespace stepnet::testing::tape_test
