// Convolutions and pools on a GPU give what they give on the CPU.
#include <random>

#include "tests/gpu/gpu_test.h"

namespace stepnet::testing::convolution_test {
namespace {

Argument ints(const char* name, const std::vector<int64_t>& values) { return make_arg(name, values); }
Argument number(const char* name, int64_t value) { return make_arg(name, value); }

void expect_same_conv(const Shape& x, const Shape& filter, const std::vector<Argument>& args) {
  Feeds feeds = {
      {"X", normal<double>(x, 1)}, {"filter", normal<double>(filter, 2)}, {"bias", normal<double>({filter[0]}, 3)}};
  for (const char* bias : {"bias", ""}) {
    const OperatorDef conv = make_op("Conv", {"X", "filter", bias}, {"Y"}, args);
    EXPECT_EQ(compare_devices(conv, feeds, 1e-12), "") << x.str() << bias;
  }
  const Tensor y = run_op_on(make_op("Conv", {"X", "filter"}, {"Y"}, args), feeds)[0];
  feeds.emplace_back("dY", normal<double>(y.shape(), 4));
  for (const std::vector<std::string>& outputs :
       {std::vector<std::string>{"dfilter", "dbias", "dX"}, {"dfilter", "dbias"}, {"dfilter"}})
    EXPECT_EQ(compare_devices(make_op("ConvGradient", {"X", "filter", "dY"}, outputs, args), feeds, 1e-11), "")
        << x.str() << outputs.size();
}

TEST_F(GpuTest, Convolutions) {
  expect_same_conv({2, 3, 7, 6}, {4, 3, 3, 2}, {ints("kernels", {3, 2}), number("pad", 1), number("stride", 2)});
  expect_same_conv({3, 4, 9}, {6, 2, 2}, {number("kernel", 2), number("group", 2), number("dilation", 3)});
  expect_same_conv({2, 2, 3, 4, 3}, {3, 2, 2, 2, 2}, {number("kernel", 2), ints("pads", {0, 1, 2, 1, 0, 0})});
  expect_same_conv({3, 4, 2, 3}, {6, 2, 1, 1}, {number("kernel", 1), number("group", 2)});
  expect_same_conv({0, 2, 3, 3}, {2, 2, 2, 2}, {number("kernel", 2)});
}

void expect_same_pools(const Shape& shape, const std::vector<Argument>& args) {
  for (const char* type : {"MaxPool", "AveragePool"}) {
    const Tensor x = integers<double>(shape, 0, 9, 1);
    Feeds feeds = {{"X", x}};
    EXPECT_EQ(compare_devices(make_op(type, {"X"}, {"Y"}, args), feeds, 1e-13), "") << type;
    const Tensor y = run_op_on(make_op(type, {"X"}, {"Y"}, args), feeds)[0];
    feeds.emplace_back("Y", y);
    feeds.emplace_back("dY", normal<double>(y.shape(), 4));
    const std::string gradient = std::string(type) + "Gradient";
    EXPECT_EQ(compare_devices(make_op(gradient, {"X", "Y", "dY"}, {"dX"}, args), feeds, 1e-13), "") << type;
    if (gradient[0] == 'A') continue;
    feeds.emplace_back("ddX", normal<double>(x.shape(), 5));
    EXPECT_EQ(compare_devices(make_op("MaxPoolSecondGradient", {"X", "Y", "ddX"}, {"ddY"}, args), feeds, 1e-13), "");
  }
}

TEST_F(GpuTest, Pools) {
  for (const std::vector<Argument>& args :
       {std::vector<Argument>{number("kernel", 3), number("stride", 2), number("pad", 1)},
        {ints("kernels", {2, 3}), ints("pads", {1, 2, 0, 1})},
        {make_arg("global_pooling", true)},
        {ints("output_sizes", {3, 8})}})
    expect_same_pools({2, 3, 7, 6}, args);
}

// Sizes of all kinds, of one to three dimensions: those that are divided by are powers of two and others.
TEST_F(GpuTest, RandomWindows) {
  std::minstd_rand random(1);
  const auto from_to = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < 40; ++i) {
    const int dims = 1 + i % 3;
    const int64_t groups = from_to(1, 2);
    Shape x{from_to(1, 3), 2 * from_to(1, 2)}, filter{2 * from_to(1, 2), x[1] / groups};
    std::vector<int64_t> kernels, strides, pads(2 * static_cast<size_t>(dims)), outputs;
    for (int d = 0; d < dims; ++d) {
      x.push_back(from_to(5, 9));
      kernels.push_back(from_to(1, 3));
      strides.push_back(from_to(1, 3));
      outputs.push_back(from_to(1, 9));
      filter.push_back(kernels.back());
      for (const int end : {0, dims}) pads[static_cast<size_t>(d + end)] = from_to(0, kernels.back() - 1);
    }
    std::vector<Argument> windows = {ints("kernels", kernels), ints("strides", strides), ints("pads", pads)};
    expect_same_pools(x, i % 4 == 3 ? std::vector<Argument>{ints("output_sizes", outputs)} : windows);
    windows.push_back(number("group", groups));
    if (i % 2 == 0) windows.push_back(number("dilation", from_to(1, 2)));
    expect_same_conv(x, filter, windows);
  }
}

}  // namespace
}  // namespace stepnet::testing::convolution_test
