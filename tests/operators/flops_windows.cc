// References of Conv and of the pools.
#include <functional>
#include <vector>

#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

struct Dim {
  int64_t in = 0, out = 0, kernel = 0, stride = 1, pad = 0, dilation = 1;
  bool adaptive = false;

  // The element of X that is element k of the window of output o, or -1.
  int64_t place(int64_t o, int64_t k) const {
    int64_t at = o * stride - pad + k * dilation, end = in;
    if (adaptive) {
      at = o * in / out + k;
      while (end > 0 && (end - 1) * out >= (o + 1) * in) --end;
    }
    return at < end ? std::max<int64_t>(at, -1) : -1;
  }
};

int64_t in_list(const CountedCall& c, const char* list, const char* one, size_t i, int64_t fallback) {
  const Argument* all = c.find(list);
  return all && all->ints_size() > 0 ? all->ints(static_cast<int>(i)) : c.whole(one, fallback);
}

// The dimensions of X after the first two; y has the outputs' sizes.
std::vector<Dim> dims_of(const CountedCall& c, const Shape& x, const Shape& y) {
  std::vector<Dim> dims;
  const char *const sides[] = {"_h", "_w"}, *const fronts[] = {"pad_t", "pad_l"};
  for (int d = 2; d < x.rank(); ++d) {
    const size_t i = static_cast<size_t>(d - 2);
    Dim dim{x[d], y[d]};
    const auto value = [&](const std::string& name) {
      const int64_t apart = i < 2 ? c.whole(name + sides[i], 1) : 1;
      return in_list(c, (name + "s").c_str(), name.c_str(), i, apart);
    };
    dim.adaptive = c.find("output_size") || c.find("output_sizes");
    dim.kernel = c.whole("global_pooling", 0) != 0 || dim.adaptive ? x[d] : value("kernel");
    dim.stride = value("stride");
    dim.dilation = value("dilation");
    dim.pad = in_list(c, "pads", "pad", i, i < 2 ? c.whole(fronts[i], 0) : 0);
    dims.push_back(dim);
  }
  return dims;
}

// fn(output, place in the window, element of X or -1) for all outputs of a channel and all places.
void each_place(const std::vector<Dim>& dims, const std::function<void(int64_t, int64_t, int64_t)>& fn) {
  int64_t outputs = 1, places = 1;
  for (const Dim& d : dims) outputs *= d.out, places *= d.kernel;
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t k = 0; k < places; ++k) {
      int64_t at = 0, size = 1, rest_o = o, rest_k = k;
      bool inside = true;
      for (size_t i = dims.size(); i-- > 0;) {
        const Dim& d = dims[i];
        const int64_t place = d.place(rest_o % d.out, rest_k % d.kernel);
        inside = inside && place >= 0;
        at += place * size;
        size *= d.in;
        rest_o /= d.out;
        rest_k /= d.kernel;
      }
      fn(o, k, inside ? at : -1);
    }
}

// fn(element of X or -1, of the filter, of Y, output channel) for all products of a convolution.
void each_product(const CountedCall& c, const Shape& x, const Shape& w, const Shape& y,
                  const std::function<void(int64_t, int64_t, int64_t, int64_t)>& fn) {
  const std::vector<Dim> dims = dims_of(c, x, y);
  const int64_t in = x.size_between(2, x.rank()), out = y.size_between(2, y.rank()),
                places = w.size_between(2, w.rank());
  const int64_t filters_of_group = w[0] / c.whole("group", 1);
  for (int64_t n = 0; n < x[0]; ++n)
    for (int64_t m = 0; m < w[0]; ++m)
      for (int64_t j = 0; j < w[1]; ++j) {
        const int64_t channel = m / filters_of_group * w[1] + j;
        each_place(dims, [&](int64_t o, int64_t k, int64_t i) {
          fn(i < 0 ? -1 : (n * x[1] + channel) * in + i, (m * w[1] + j) * places + k, (n * w[0] + m) * out + o, m);
        });
      }
}

void conv(CountedCall& c) {
  Numbers& y = c.y(0);
  const Shape& shape = c.out[0].shape;
  each_product(c, c.x(0).shape, c.x(1).shape, shape, [&](int64_t i, int64_t k, int64_t o, int64_t) {
    y[o] += (i < 0 ? Counted() : c.x(0).v[i]) * c.x(1).v[k];
  });
  if (!c.x(2).there) return;
  const int64_t inner = shape.size_between(2, shape.rank());
  for (int64_t o = 0; o < shape.size(); ++o) y[o] += c.x(2).v[o / inner % shape[1]];
}

// Inputs are X, filter and dY.
void conv_gradient(CountedCall& c) {
  const CountedTensor& dy = c.x(2);
  Counted padding;
  each_product(c, c.x(0).shape, c.x(1).shape, dy.shape, [&](int64_t i, int64_t k, int64_t o, int64_t) {
    if (c.wants(0)) c.y(0)[k] += (i < 0 ? Counted() : c.x(0).v[i]) * dy.v[o];
    if (c.wants(2)) (i < 0 ? padding : c.y(2)[i]) += c.x(1).v[k] * dy.v[o];
  });
  if (!c.wants(1)) return;
  const int64_t inner = dy.shape.size_between(2, dy.shape.rank());
  for (int64_t o = 0; o < dy.size(); ++o) c.y(1)[o / inner % dy.shape[1]] += dy.v[o];
}

// fn(element of X, element of Y) for all elements of X in all windows.
void each_element(const CountedCall& c, const Shape& x, const Shape& y,
                  const std::function<void(int64_t, int64_t)>& fn) {
  const std::vector<Dim> dims = dims_of(c, x, y);
  const int64_t in = x.size_between(2, x.rank()), out = y.size_between(2, y.rank());
  for (int64_t image = 0; image < x[0] * x[1]; ++image)
    each_place(dims, [&](int64_t o, int64_t, int64_t i) {
      if (i >= 0) fn(image * in + i, image * out + o);
    });
}

// How many elements the mean of each element of Y is of.
std::vector<double> counts(const CountedCall& c, const Shape& x, const Shape& y) {
  std::vector<double> all(static_cast<size_t>(y.size()), 0);
  each_element(c, x, y, [&](int64_t, int64_t o) { ++all[o]; });
  if (c.whole("count_include_pad", 0) == 0 || c.find("output_size") || c.find("output_sizes")) return all;
  double places = 1;
  for (const Dim& d : dims_of(c, x, y)) places *= static_cast<double>(d.kernel);
  return std::vector<double>(all.size(), places);
}

void average_pool(CountedCall& c) {
  const Shape &x = c.x(0).shape, &y = c.out[0].shape;
  each_element(c, x, y, [&](int64_t i, int64_t o) { c.y(0)[o] += c.x(0).v[i]; });
  const std::vector<double> of = counts(c, x, y);
  for (size_t o = 0; o < of.size(); ++o) c.y(0)[o] = c.y(0)[o] / of[o];
}

// Inputs are X, Y and dY.
void average_pool_gradient(CountedCall& c) {
  const Shape &x = c.x(0).shape, &y = c.x(2).shape;
  const std::vector<double> of = counts(c, x, y);
  Numbers shares;
  for (size_t o = 0; o < of.size(); ++o) shares.push_back(c.x(2).v[o] / of[o]);
  each_element(c, x, y, [&](int64_t i, int64_t o) { c.y(0)[i] += shares[o]; });
}

// Inputs are X, Y and dY.
void max_pool_gradient(CountedCall& c) {
  each_element(c, c.x(0).shape, c.x(1).shape, [&](int64_t i, int64_t o) {
    c.y(0)[i] += c.x(0).v[i].value == c.x(1).v[o].value ? c.x(2).v[o] : Counted();
  });
}

// Inputs are X, Y and ddX.
void max_pool_second_gradient(CountedCall& c) {
  each_element(c, c.x(0).shape, c.x(1).shape, [&](int64_t i, int64_t o) {
    c.y(0)[o] += c.x(0).v[i].value == c.x(1).v[o].value ? c.x(2).v[i] : Counted();
  });
}

void max_pool(CountedCall& c) {
  for (Counted& y : c.y(0)) y.value = -HUGE_VAL;
  each_element(c, c.x(0).shape, c.out[0].shape, [&](int64_t i, int64_t o) { c.y(0)[o] = max(c.y(0)[o], c.x(0).v[i]); });
}

}  // namespace

void add_window_references(References& r) {
  r["MaxPool"] = max_pool;
  r["MaxPoolGradient"] = max_pool_gradient;
  r["MaxPoolSecondGradient"] = max_pool_second_gradient;
  r["AveragePool"] = average_pool;
  r["AveragePoolGradient"] = average_pool_gradient;
}

void add_convolution_references(References& r) {
  r["Conv"] = conv;
  r["ConvGradient"] = conv_gradient;
}

}  // namespace stepnet::testing
