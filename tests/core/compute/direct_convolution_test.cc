// Direct convolutions against plain loops, whole and in parts. That operators get what products would give them is in
// tests/operators/convolution/conv_test.cc.
#include "core/compute/direct_convolution.h"

#include "core/compute/threads.h"
#include "stepnet/matmul.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::direct_convolution_test {
namespace {

int64_t over_axes(const ConvolutionSizes& s, int64_t ConvolutionAxis::*size) {
  return s.axes[0].*size * s.axes[1].*size * s.axes[2].*size;
}

// Calls fn for each output along the axis and each element of its window that is inside of X: with the place in X, in
// the window, and in Y, which go on from those of the axes before.
struct Places {
  int64_t x = 0, filter = 0, y = 0;
};
template <class Fn>
void each_place(const ConvolutionSizes& s, Places at, Fn fn, size_t axis = 0) {
  if (axis == s.axes.size()) return fn(at);
  const ConvolutionAxis& a = s.axes[axis];
  for (int64_t o = 0; o < a.out; ++o)
    for (int64_t k = 0; k < a.kernel; ++k)
      if (const int64_t x = o * a.stride - a.pad + k * a.dilation; x >= 0 && x < a.in)
        each_place(s, {at.x * a.in + x, at.filter * a.kernel + k, at.y * a.out + o}, fn, axis + 1);
}

// Calls fn for every product that is a term of the convolution.
template <class Fn>
void each_term(const ConvolutionSizes& s, Fn fn) {
  for (int64_t n = 0; n < s.samples; ++n)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t m = 0; m < s.filters; ++m)
        for (int64_t c = 0; c < s.channels; ++c)
          each_place(s,
                     {(n * s.groups + g) * s.channels + c, (g * s.filters + m) * s.channels + c,
                      (n * s.groups + g) * s.filters + m},
                     fn);
}

struct Tensors {
  Tensor x, filter, bias, y;
};

Tensors values_of(const ConvolutionSizes& s) {
  return {normal<float>({s.samples * s.groups * s.channels * over_axes(s, &ConvolutionAxis::in)}, 1),
          normal<float>({s.groups * s.filters * s.channels * over_axes(s, &ConvolutionAxis::kernel)}, 2),
          normal<float>({s.groups * s.filters}, 3),
          normal<float>({s.samples * s.groups * s.filters * over_axes(s, &ConvolutionAxis::out)}, 4)};
}

// Y, dX and dfilter, where `y` of the values is dY.
Tensors by_plain_loops(const ConvolutionSizes& s, const Tensors& values) {
  Tensors sums{Tensor::zeros(DType::float64, values.x.shape()),
               Tensor::zeros(DType::float64, values.filter.shape()),
               {},
               Tensor::zeros(DType::float64, values.y.shape())};
  double *x = sums.x.data<double>(), *filter = sums.filter.data<double>(), *y = sums.y.data<double>();
  const int64_t outputs = over_axes(s, &ConvolutionAxis::out), filters = s.groups * s.filters;
  for (int64_t i = 0; i < values.y.size(); ++i) y[i] = values.bias.data<float>()[i / outputs % filters];
  each_term(s, [&, vx = values.x.data<float>(), vf = values.filter.data<float>(),
                vy = values.y.data<float>()](const Places& at) {
    y[at.y] += static_cast<double>(vx[at.x]) * vf[at.filter];
    x[at.x] += static_cast<double>(vy[at.y]) * vf[at.filter];
    filter[at.filter] += static_cast<double>(vx[at.x]) * vy[at.y];
  });
  return sums;
}

std::string compare_sums(const Tensor& found, const Tensor& wanted, const Tensor* before = nullptr) {
  Tensor sums = wanted.clone();
  for (int64_t i = 0; before && i < sums.size(); ++i) sums.data<double>()[i] += before->data<float>()[i];
  return compare(to_double(found), sums, 5e-6, ErrorScale::tensor);
}

// What differs from plain loops, of those of the three that oneDNN computes on this CPU.
std::string difference(const ConvolutionSizes& s) {
  const Tensors values = values_of(s), wanted = by_plain_loops(s, values);
  const auto data = [](const Tensor& t) { return t.data<float>(); };
  std::string found;
  Tensor y = normal<float>(values.y.shape(), 9);
  if (convolve(s, data(values.x), data(values.filter), data(values.bias), y.data<float>()))
    found += compare_sums(y, wanted.y);
  for (const bool add : {false, true}) {
    const Tensor x_before = normal<float>(values.x.shape(), 9), filter_before = normal<float>(values.filter.shape(), 9);
    Tensor x = x_before.clone(), filter = filter_before.clone();
    if (convolve_for_data(s, data(values.filter), data(values.y), x.data<float>(), add))
      found += compare_sums(x, wanted.x, add ? &x_before : nullptr);
    if (convolve_for_filter(s, data(values.x), data(values.y), filter.data<float>(), add))
      found += compare_sums(filter, wanted.filter, add ? &filter_before : nullptr);
  }
  return found;
}

struct WithThreads {
  explicit WithThreads(int count) : before(threads()) { set_threads(count); }
  ~WithThreads() { set_threads(before); }
  int before;
};

const ConvolutionAxis kNine{.in = 9, .out = 5, .kernel = 3, .stride = 2, .pad = 1};
const ConvolutionAxis kDilated{.in = 11, .out = 9, .kernel = 3, .dilation = 2, .pad = 1};
const ConvolutionAxis kRestBehind{.in = 12, .out = 4, .kernel = 2, .stride = 3};  // no window reaches the last element

TEST(DirectConvolution, IsWhatPlainLoopsGive) {
  const std::vector<ConvolutionSizes> all = {
      {.samples = 3, .channels = 8, .filters = 16, .dims = 2, .axes = {{{}, kNine, kDilated}}},
      {.samples = 2, .channels = 17, .filters = 16, .dims = 2, .axes = {{{}, kRestBehind, kNine}}},
      {.samples = 1, .channels = 9, .filters = 33, .dims = 1, .axes = {{{}, {}, kNine}}},
      {.samples = 2, .channels = 16, .filters = 16, .dims = 3, .axes = {{kNine, kNine, kNine}}},
      {.samples = 2, .groups = 2, .channels = 16, .filters = 16, .dims = 2, .axes = {{{}, kNine, kNine}}},
      {.samples = 3, .groups = 20, .channels = 1, .filters = 1, .dims = 2, .axes = {{{}, kNine, kNine}}},
      {.samples = 5, .channels = 24, .filters = 40, .dims = 2, .axes = {{{}, {2, 2}, {3, 3}}}},
  };
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(difference(all[i]), "") << "form " << i;
}

// Samples are shared out, channels or filters, and groups.
TEST(DirectConvolution, InPartsOfThreads) {
  const ConvolutionAxis wide{.in = 20, .out = 20, .kernel = 3, .pad = 1};
  const std::vector<ConvolutionSizes> all = {
      {.samples = 13, .channels = 16, .filters = 32, .dims = 2, .axes = {{{}, wide, wide}}},
      {.samples = 1, .channels = 40, .filters = 56, .dims = 2, .axes = {{{}, wide, wide}}},
      {.samples = 1, .groups = 3, .channels = 16, .filters = 32, .dims = 2, .axes = {{{}, wide, wide}}},
      {.samples = 2, .groups = 100, .channels = 1, .filters = 1, .dims = 2, .axes = {{{}, wide, wide}}},
  };
  for (const int count : {1, 2, 3}) {
    const WithThreads scope(count);
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(difference(all[i]), "") << "form " << i << " on " << count << " threads";
  }
}

TEST(DirectConvolution, RepeatsToTheBit) {
  const ConvolutionAxis wide{.in = 20, .out = 20, .kernel = 3, .pad = 1};
  const ConvolutionSizes s{.samples = 4, .channels = 48, .filters = 64, .dims = 2, .axes = {{{}, wide, wide}}};
  const Tensors values = values_of(s);
  for (const int count : {1, 2}) {
    const WithThreads scope(count);
    std::vector<Tensor> found;
    for (int run = 0; run < 3; ++run) {
      Tensor& filter = found.emplace_back(Tensor::zeros(DType::float32, values.filter.shape()));
      convolve_for_filter(s, values.x.data<float>(), values.y.data<float>(), filter.data<float>(), false);
      EXPECT_EQ(compare(filter, found[0], 0), "");
    }
  }
}

TEST(DirectConvolution, LeavesToProductsWhatTheyDoBetter) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "oneDNN has direct convolutions for other CPUs, too, but not these";
#endif
  const auto taken = [](const ConvolutionSizes& s) {
    const Tensors values = values_of(s);
    Tensor x = values.x.clone(), filter = values.filter.clone(), y = values.y.clone();
    const auto data = [](const Tensor& t) { return t.data<float>(); };
    return std::vector<bool>{convolve(s, data(values.x), data(values.filter), nullptr, y.data<float>()),
                             convolve_for_data(s, data(values.filter), data(values.y), x.data<float>(), false),
                             convolve_for_filter(s, data(values.x), data(values.y), filter.data<float>(), false)};
  };
  using All = std::vector<bool>;
  ConvolutionSizes s{.samples = 2, .channels = 16, .filters = 16, .dims = 2, .axes = {{{}, kNine, kNine}}};
  EXPECT_EQ(taken(s), (All{true, true, true}));
  s.channels = 3;
  EXPECT_EQ(taken(s), (All{true, false, true}));
  for (int64_t ConvolutionSizes::*size :
       {&ConvolutionSizes::samples, &ConvolutionSizes::channels, &ConvolutionSizes::filters}) {
    ConvolutionSizes none = s;
    none.*size = 0;
    EXPECT_EQ(taken(none), (All{false, false, false}));
  }
  s.channels = 16;
  s.axes = {{{}, {20, 20}, {20, 20}}};  // of 1 x 1 elements
  EXPECT_EQ(taken(s), (All{false, false, false}));
  s.axes = {{{}, {4, 4}, {4, 4}}};
  EXPECT_EQ(taken(s), (All{true, true, false}));
}

TEST(DirectConvolution, IsCountedAsProductsAre) {
  const ConvolutionSizes s{.samples = 2, .channels = 16, .filters = 16, .dims = 2, .axes = {{{}, kNine, kNine}}};
  const Tensors values = values_of(s);
  Tensor y = values.y.clone();
  const auto flops = [&] {
    const double before = matmul_counters().flops;
    const bool done = convolve(s, values.x.data<float>(), values.filter.data<float>(), nullptr, y.data<float>());
    return std::pair(done, matmul_counters().flops - before);
  };
  EXPECT_EQ(flops().second, 0);
  count_matmuls(true);
  const auto [done, counted] = flops();
  EXPECT_EQ(counted, done ? 2.0 * 2 * 16 * 16 * 9 * 25 : 0);
  count_matmuls(false);
}

}  // namespace
}  // namespace stepnet::testing::direct_convolution_test
