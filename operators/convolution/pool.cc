// MaxPool and AveragePool: the greatest, and the mean, of X [N, C, ...] in windows over the dimensions after the first
// two. Padding never is the greatest; it does not count in means, or with count_include_pad as zeros. NaN is greater
// than any number. Adaptive pools are given the output's size in place of the windows'.
//
// dX of MaxPool is, as in the public format, the sum of dY over the windows in which X has the value of Y: of several
// elements that are equal, each gets the whole of dY. The derivative of that sums over the same elements of a window.
// dX of AveragePool is the sum of dY / count over the windows; its derivative is AveragePool.
#include "operators/convolution/pool.h"

#include <numeric>

#include "core/compute/threads.h"
#include "core/operator/flops.h"

namespace stepnet::cpu_pool {
namespace {

void infer(const PoolArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  c.set(0, c.dtype(0), windows_shape(pool_windows(a, c.shape(0)), c.shape(0), c.shape(0)[1]));
}

// Inputs are X, Y and dY.
void infer_gradient(const PoolArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  const Shape y = windows_shape(pool_windows(a, c.shape(0)), c.shape(0), c.shape(0)[1]);
  for (const int i : {1, 2})
    if (c.known(i))
      require(c.shape(i) == y, "{} is {}, but of X {} {}", i == 1 ? "Y" : "dY", c.shape(i), c.shape(0), y);
  c.set_like(0, 0);
}

// Inputs are X, Y and ddX.
void infer_second(const PoolArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  const Shape y = windows_shape(pool_windows(a, c.shape(0)), c.shape(0), c.shape(0)[1]);
  if (c.known(1)) require(c.shape(1) == y, "Y is {}, but of X {} {}", c.shape(1), c.shape(0), y);
  if (c.known(2)) require(c.shape(2) == c.shape(0), "ddX is {}, but X {}", c.shape(2), c.shape(0));
  c.set(0, c.dtype(0), y);
}

// fn(first element of X, first element of Y) for each channel of each sample, by several threads.
template <class Fn>
void each_image(const Windows& w, const Shape& x, Fn fn) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i * w.inputs, i * w.outputs);
  };
  parallel_for(x[0] * x[1], static_cast<double>(w.places * w.outputs), range);
}

template <class T>
void max_forward(const MaxPoolArgs& a, In<T> x, Out<T> y, Call& call) {
  const Shape& shape = call.in(0).shape();
  const Windows w = pool_windows(a, shape);
  each_image(w, shape, [&](int64_t in, int64_t out) {
    for (int64_t o = 0; o < w.outputs; ++o) {
      bool first = true;
      T most = 0;
      each_in_window(w, o, [&](int64_t i) {
        const T v = x[in + i];
        if (first || v > most || v != v) most = v;
        first = false;
      });
      y[out + o] = most;
    }
  });
}

template <class T>
void max_gradient(const MaxPoolArgs& a, In<T> x, In<T> y, In<T> dy, Out<T> dx, Call& call) {
  const Shape& shape = call.in(0).shape();
  const Windows w = pool_windows(a, shape);
  std::ranges::fill(dx, T(0));
  each_image(w, shape, [&](int64_t in, int64_t out) {
    for (int64_t o = 0; o < w.outputs; ++o)
      each_in_window(w, o, [&](int64_t i) {
        if (x[in + i] == y[out + o]) dx[in + i] += dy[out + o];
      });
  });
}

template <class T>
void max_second(const MaxPoolArgs& a, In<T> x, In<T> y, In<T> ddx, Out<T> ddy, Call& call) {
  const Shape& shape = call.in(0).shape();
  const Windows w = pool_windows(a, shape);
  each_image(w, shape, [&](int64_t in, int64_t out) {
    for (int64_t o = 0; o < w.outputs; ++o) {
      T sum = 0;
      each_in_window(w, o, [&](int64_t i) {
        if (x[in + i] == y[out + o]) sum += ddx[in + i];
      });
      ddy[out + o] = sum;
    }
  });
}

template <class T>
void average_forward(const AveragePoolArgs& a, In<T> x, Out<T> y, Call& call) {
  const Shape& shape = call.in(0).shape();
  const Windows w = pool_windows(a, shape);
  each_image(w, shape, [&](int64_t in, int64_t out) {
    for (int64_t o = 0; o < w.outputs; ++o) {
      T sum = 0;
      each_in_window(w, o, [&](int64_t i) { sum += x[in + i]; });
      y[out + o] = sum / static_cast<T>(averaged(w, o, a.count_include_pad));
    }
  });
}

template <class T>
void average_gradient(const AveragePoolArgs& a, In<T>, In<T>, In<T> dy, Out<T> dx, Call& call) {
  const Shape& shape = call.in(0).shape();
  const Windows w = pool_windows(a, shape);
  std::ranges::fill(dx, T(0));
  each_image(w, shape, [&](int64_t in, int64_t out) {
    for (int64_t o = 0; o < w.outputs; ++o) {
      const T share = dy[out + o] / static_cast<T>(averaged(w, o, a.count_include_pad));
      each_in_window(w, o, [&](int64_t i) { dx[in + i] += share; });
    }
  });
}

// How many elements of X all windows along a dimension have. Adaptive ones share an element between two of them but for
// where both begin anew, which is as often as the sizes have common divisors. Others: up to where they end, but for
// those before they begin, both of which are even steps as long as they are inside of X.
double elements_of(const WindowAxis& w) {
  if (w.adaptive) return static_cast<double>(w.in + w.out - std::gcd(w.in, w.out));
  const auto sum = [&w](int64_t outputs, int64_t offset) {  // of o * stride + offset for o < outputs
    const auto n = static_cast<double>(outputs);
    return static_cast<double>(w.stride) * n * (n - 1) / 2 + static_cast<double>(offset) * n;
  };
  const auto outputs_below = [&w](int64_t place) {  // whose windows begin below it
    const int64_t room = place + w.pad;
    return room <= 0 ? int64_t{0} : std::min((room + w.stride - 1) / w.stride, w.out);
  };
  const int64_t early = outputs_below(0), whole = outputs_below(w.in - w.kernel);
  const double ends = sum(whole, w.kernel - w.pad) + static_cast<double>(w.in) * static_cast<double>(w.out - whole);
  return ends - (sum(w.out, -w.pad) - sum(early, -w.pad));
}

// An addition for each element of X in each window.
double flops_of_elements(const PoolArgs& a, const ShapeCall& c) {
  if (!c.known(0)) return 0;
  const Shape& x = c.shape(0);
  double elements = static_cast<double>(x[0] * x[1]);
  for (const WindowAxis& axis : pool_windows(a, x).axis) elements *= elements_of(axis);
  return elements;
}

double flops_of_outputs(const PoolArgs& a, const ShapeCall& c) {
  if (!c.known(0)) return 0;
  const Shape& x = c.shape(0);
  return static_cast<double>(x[0] * x[1]) * static_cast<double>(pool_windows(a, x).outputs);
}

template <class Args>
OpBuilder<Args>& add_pool_args(OpBuilder<Args>& b) {
  return add_window_args(b)
      .arg("global_pooling", static_cast<bool Args::*>(&WindowArgs::global_pooling), false,
           "one window, of all elements")
      .arg("output_size", static_cast<std::optional<int64_t> Args::*>(&PoolArgs::output_size), {},
           "in place of windows, steps and padding, Y's size along each dimension: output o is of the elements from "
           "floor(o size / output_size) to ceil((o + 1) size / output_size), without the latter")
      .arg("output_sizes", static_cast<std::vector<int64_t> Args::*>(&PoolArgs::output_sizes), {},
           "or along each of them")
      .own_args({"output_size", "output_sizes"})
      .refuses("dilation", int64_t{1}, "would let windows leave elements out")
      .refuses("dilations", "would let windows leave elements out");
}

REGISTER(max_pool) {
  auto b = op<MaxPoolArgs>("MaxPool");
  return add_pool_args(b)
      .doc("The greatest element of each window.")
      .input("X", "[N, C, ...] with one to three dimensions behind")
      .output("Y", "[N, C, ...]: along each dimension (size + padding - kernel) / stride + 1, or output_size")
      .shape([](const MaxPoolArgs& a, ShapeCall& c) { infer(a, c); })
      .cpu(max_forward<float>, max_forward<double>)
      .example({"X=2,2,3,4"}, {"kernels=2,3", "stride=2", "pad=1"})
      .example({"X=1,2,5"}, {"kernel=3", "pads=2,0"})
      .example({"X=1,1,2,2,3"}, {"kernel=2"})
      .example({"X=2,3,2,2"}, {"global_pooling=true"})
      .example({"X=2,2,5,3"}, {"output_sizes=3,4"})
      .example({"X=0,2,2"}, {"kernel=1"})
      .derivative("X", [](Formula& f) {
        return f.op("MaxPoolGradient", {f.x("X"), f.y("Y"), f.dy("Y")}, f.forward_args());
      });
}

REGISTER(max_pool_gradient) {
  auto b = op<MaxPoolArgs>("MaxPoolGradient");
  return add_pool_args(b)
      .doc("Gradient of MaxPool. Of several elements of a window that are the greatest, each gets all of it.")
      .input("X", "MaxPool's X")
      .input("Y", "its Y")
      .input("dY", "gradient of its Y")
      .output("dX", "like X")
      .shape([](const MaxPoolArgs& a, ShapeCall& c) { infer_gradient(a, c); })
      .flops([](const MaxPoolArgs& a, const ShapeCall& c) { return flops_of_elements(a, c); })
      .cpu(max_gradient<float>, max_gradient<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dY", [](Formula& f) {
        return f.op("MaxPoolSecondGradient", {f.x("X"), f.x("Y"), f.dy("dX")}, f.forward_args());
      });
}

REGISTER(max_pool_second_gradient) {
  auto b = op<MaxPoolArgs>("MaxPoolSecondGradient");
  return add_pool_args(b)
      .own()
      .doc("Gradient of MaxPoolGradient: of each window the sum of ddX where X has the value of Y.")
      .input("X", "MaxPool's X")
      .input("Y", "its Y")
      .input("ddX", "gradient of MaxPoolGradient's dX")
      .output("ddY", "like Y")
      .shape([](const MaxPoolArgs& a, ShapeCall& c) { infer_second(a, c); })
      .flops([](const MaxPoolArgs& a, const ShapeCall& c) { return flops_of_elements(a, c); })
      .cpu(max_second<float>, max_second<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("ddX", [](Formula& f) {
        return f.op("MaxPoolGradient", {f.x("X"), f.x("Y"), f.dy("ddY")}, f.forward_args());
      });
}

OpBuilder<AveragePoolArgs>& add_average_args(OpBuilder<AveragePoolArgs>& b) {
  return add_pool_args(b).arg("count_include_pad", &AveragePoolArgs::count_include_pad, false,
                              "padding counts in the means, as zeros");
}

REGISTER(average_pool) {
  auto b = op<AveragePoolArgs>("AveragePool");
  return add_average_args(b)
      .doc("The mean of each window.")
      .input("X", "[N, C, ...] with one to three dimensions behind")
      .output("Y", "[N, C, ...]: along each dimension (size + padding - kernel) / stride + 1, or output_size")
      .shape([](const AveragePoolArgs& a, ShapeCall& c) { infer(a, c); })
      .flops(
          [](const AveragePoolArgs& a, const ShapeCall& c) { return flops_of_elements(a, c) + flops_of_outputs(a, c); })
      .cpu(average_forward<float>, average_forward<double>)
      .example({"X=2,2,3,4"}, {"kernels=2,3", "stride=2", "pad=1"})
      .example({"X=1,2,5"}, {"kernel=3", "pads=2,0", "count_include_pad=true"})
      .example({"X=1,1,2,2,3"}, {"kernel=2"})
      .example({"X=2,3,2,2"}, {"global_pooling=true"})
      .example({"X=2,2,5,3"}, {"output_sizes=3,4"})
      .example({"X=0,2,2"}, {"kernel=1"})
      .derivative("X", [](Formula& f) {
        return f.op("AveragePoolGradient", {f.x("X"), f.y("Y"), f.dy("Y")}, f.forward_args());
      });
}

REGISTER(average_pool_gradient) {
  auto b = op<AveragePoolArgs>("AveragePoolGradient");
  return add_average_args(b)
      .doc("Gradient of AveragePool.")
      .input("X", "AveragePool's X; its values are not read")
      .shape_only()
      .input("Y", "its Y; its values are not read")
      .shape_only()
      .input("dY", "gradient of its Y")
      .output("dX", "like X")
      .shape([](const AveragePoolArgs& a, ShapeCall& c) { infer_gradient(a, c); })
      .flops(
          [](const AveragePoolArgs& a, const ShapeCall& c) { return flops_of_elements(a, c) + flops_of_outputs(a, c); })
      .cpu(average_gradient<float>, average_gradient<double>)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .derivative("Y", [](Formula&) { return Gradient::none(); })
      .derivative("dY", [](Formula& f) { return f.op("AveragePool", {f.dy("dX")}, f.forward_args()); });
}

}  // namespace
}  // namespace stepnet::cpu_pool
