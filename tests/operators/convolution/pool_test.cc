// MaxPool and AveragePool against plain loops (tests/operators/flops_windows.cc) and central differences.
#include <cmath>
#include <limits>
#include <set>

#include "operators/convolution/pool.h"
#include "tests/operators/flops_check.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::pool_test {
namespace {

using Ints = std::vector<int64_t>;

struct Case {
  Shape x;
  std::vector<Argument> args;
};

Argument ints(const char* name, const Ints& values) { return make_arg(name, values); }
Argument number(const char* name, int64_t value) { return make_arg(name, value); }

std::vector<Case> cases() {
  return {
      {{2, 3, 6, 4}, {number("kernel", 2), number("stride", 2)}},
      {{2, 3, 5, 7}, {ints("kernels", {3, 2}), ints("strides", {2, 3})}},
      {{2, 3, 5, 4}, {number("kernel", 3), number("pad", 2), number("stride", 2)}},
      {{1, 2, 4, 5}, {number("kernel_h", 2), number("kernel_w", 3), number("pad_l", 2), number("pad_b", 1)}},
      {{2, 2, 9}, {number("kernel", 4), ints("pads", {3, 1}), number("stride", 3)}},
      {{1, 2, 3, 4, 3}, {number("kernel", 2), ints("strides", {1, 2, 1})}},
      {{2, 3, 4, 5}, {make_arg("global_pooling", true)}},
      {{2, 3, 5, 7}, {ints("output_sizes", {3, 2})}},
      {{2, 3, 4, 6}, {number("output_size", 2)}},
      {{1, 2, 3}, {number("output_size", 7)}},
      {{1, 2, 5, 1, 4}, {ints("output_sizes", {4, 2, 4})}},
      {{2, 3, 1, 1}, {number("kernel", 1)}},
      {{0, 3, 2, 2}, {number("kernel", 2)}},
      {{2, 0, 2, 2}, {number("kernel", 2)}},
  };
}

std::vector<OperatorDef> pools(const std::vector<Argument>& args) {
  std::vector<Argument> with_padding = args;
  with_padding.push_back(make_arg("count_include_pad", true));
  return {make_op("MaxPool", {"X"}, {"Y"}, args), make_op("AveragePool", {"X"}, {"Y"}, args),
          make_op("AveragePool", {"X"}, {"Y"}, with_padding)};
}

OperatorDef gradient_of(const OperatorDef& pool) {
  OperatorDef def = make_op(pool.type() + "Gradient", {"X", "Y", "dY"}, {"dX"});
  *def.mutable_arg() = pool.arg();
  return def;
}

template <class T>
void expect_as_plain_loops(const OperatorDef& pool, const Tensor& x) {
  NetDef net;
  *net.add_op() = pool;
  const CountedRun run = run_counted(net, {{"X", x}});
  EXPECT_EQ(run.problems, "") << x.shape().str();
  if (!run.problems.empty()) return;
  NetDef back;
  *back.add_op() = gradient_of(pool);
  const Tensor& y = run.blobs.at("Y");
  EXPECT_EQ(run_counted(back, {{"X", x}, {"Y", y}, {"dY", normal<T>(y.shape(), 4)}}).problems, "") << x.shape().str();
}

TEST(Pools, AreWhatPlainLoopsGive) {
  for (const Case& c : cases())
    for (const OperatorDef& pool : pools(c.args)) {
      expect_as_plain_loops<double>(pool, normal<double>(c.x, 1));
      expect_as_plain_loops<float>(pool, normal<float>(c.x, 1));
      expect_as_plain_loops<double>(pool, integers<double>(c.x, 0, 2, 1));  // with elements that are equal
    }
}

TEST(Pools, Gradients) {
  for (const Case& c : cases())
    for (const OperatorDef& pool : pools(c.args)) {
      const Tensor x = normal<double>(c.x, 1);
      EXPECT_EQ(check_gradient(pool, {{"X", x}}, {"X"}), "") << pool.type() << c.x.str();
      const Tensor y = run_op_on(pool, {{"X", x}})[0];
      const Feeds feeds = {{"X", x}, {"Y", y}, {"dY", normal<double>(y.shape(), 4)}};
      EXPECT_EQ(check_gradient(gradient_of(pool), feeds, {"dY"}), "") << pool.type() << c.x.str();
      if (pool.type() != "MaxPool") continue;
      const OperatorDef second = make_op("MaxPoolSecondGradient", {"X", "Y", "ddX"}, {"ddY"}, c.args);
      EXPECT_EQ(check_gradient(second, {{"X", x}, {"Y", y}, {"ddX", normal<double>(c.x, 5)}}, {"ddX"}), "")
          << c.x.str();
    }
}

TEST(MaxPool, EachOfEqualElementsGetsAllOfTheGradient) {
  const OperatorDef pool = make_op("MaxPool", {"X"}, {"Y"}, {number("kernel", 2), number("stride", 2)});
  const Tensor x = Tensor::of<float>({1, 1, 4}, {3, 3, 1, 2}), y = Tensor::of<float>({1, 1, 2}, {3, 2});
  EXPECT_EQ(compare(run_op_on(pool, {{"X", x}})[0], y, 0), "");
  const Tensor dx = run_op_on(gradient_of(pool), {{"X", x}, {"Y", y}, {"dY", Tensor::of<float>({1, 1, 2}, {5, 7})}})[0];
  EXPECT_EQ(compare(dx, Tensor::of<float>({1, 1, 4}, {5, 5, 0, 7}), 0), "");
}

TEST(MaxPool, NaNIsGreaterThanAnyNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const OperatorDef pool = make_op("MaxPool", {"X"}, {"Y"}, {number("kernel", 3)});
  for (int place = 0; place < 3; ++place) {
    Tensor x = Tensor::of<float>({1, 1, 3}, {1, 2, 3});
    x.data<float>()[place] = nan;
    EXPECT_TRUE(std::isnan(run_op_on(pool, {{"X", x}})[0].data<float>()[0])) << place;
  }
}

// CPUs go through the elements of each window, GPUs' gradients through the windows of each element.
TEST(Pools, WindowsAreTheSameFromBothSides) {
  using Pairs = std::set<std::pair<int64_t, int64_t>>;
  const auto expect = [](const PoolArgs& a, int64_t size) {
    const Windows w = pool_windows(a, {1, 1, size});
    Pairs by_window, by_element;
    for (int64_t o = 0; o < w.outputs; ++o) each_in_window(w, o, [&](int64_t i) { by_window.emplace(i, o); });
    for (int64_t i = 0; i < size; ++i) each_window_with(w, i, [&](int64_t o) { by_element.emplace(i, o); });
    EXPECT_EQ(by_window, by_element) << size << " elements, " << w.outputs << " windows";
  };
  for (int64_t size = 1; size <= 12; ++size)
    for (int64_t other = 1; other <= 14; ++other) {
      PoolArgs adaptive, fixed;
      adaptive.output_size = other;
      expect(adaptive, size);
      fixed.kernel = std::min(size, other);
      fixed.stride = other % 3 + 1;
      expect(fixed, size);
    }
}

// PyTorch's adaptive_max_pool2d and adaptive_avg_pool2d give these.
TEST(Pools, OfGivenOutputSizes) {
  const Tensor x = Tensor::of<float>({1, 1, 3, 5}, {5, 1, 4, 2, 8, 3, 9, 0, 7, 6, 2, 2, 1, 5, 10});
  const std::vector<Argument> args = {ints("output_sizes", {2, 3})};
  EXPECT_EQ(compare(run_op_on(make_op("MaxPool", {"X"}, {"Y"}, args), {{"X", x}})[0],
                    Tensor::of<float>({1, 1, 2, 3}, {9, 9, 8, 9, 9, 10}), 0),
            "");
  EXPECT_EQ(compare(run_op_on(make_op("AveragePool", {"X"}, {"Y"}, args), {{"X", x}})[0],
                    Tensor::of<float>({1, 1, 2, 3}, {4.5F, 3.8333333F, 5.75F, 4.0F, 4.0F, 7.0F}), 1e-7),
            "");
}

TEST(Pools, MistakesAreNamed) {
  const auto expect = [](const char* type, const std::vector<Argument>& args, const char* text) {
    const std::string found = error_of([&] {
      run_op_on(make_op(type, {"X"}, {"Y"}, args), {{"X", normal<float>({1, 2, 5, 5})}});
    });
    EXPECT_NE(found.find(text), std::string::npos) << found;
  };
  expect("MaxPool", {number("kernel", 2), number("pad", 2)}, "a window of padding alone");
  expect("AveragePool", {number("kernel", 2), ints("pads", {0, 0, 3, 0}), number("stride", 2)},
         "a window of padding alone");
  expect("MaxPool", {number("kernel", 2), number("dilation", 2)}, "dilation");
  expect("AveragePool", {number("kernel", 6)}, "fewer than a window of 6 elements");
  expect("MaxPool", {number("kernel", 2), make_arg("global_pooling", true)}, "global_pooling");
  expect("MaxPool", {number("output_size", 2), number("kernel", 2)}, "and a size of windows or steps");
  expect("AveragePool", {ints("output_sizes", {2, 2}), number("pad", 1)}, "and padding");
  expect("AveragePool", {number("output_size", 0)}, "output_size is 0, but must be from 1");
  expect("MaxPool", {ints("output_sizes", {2})}, "argument \"output_sizes\" has 1 values");
  expect("MaxPool", {ints("output_sizes", {2, 2}), number("output_size", 2)}, "of which only one can count");
}

}  // namespace
}  // namespace stepnet::testing::pool_test
