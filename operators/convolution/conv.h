// The arguments and sizes of Conv and its gradient; see conv.cc. Threads: pure functions.
#pragma once

#include "operators/convolution/windows.h"

namespace stepnet {

struct ConvArgs : WindowArgs {
  int64_t group = 1;
};

// Of one sample, Y is for each group a product of the filters, [filters, depth], and the columns, [depth, outputs]:
// what the windows cover, a column for each.
struct ConvSizes {
  Windows windows;
  int64_t samples = 0, groups = 1;
  int64_t channels = 0, filters = 0;  // of a group
  int64_t depth = 0;                  // channels times the elements of a window

  int64_t x_size() const { return channels * windows.inputs; }  // of one sample and group
  int64_t y_size() const { return filters * windows.outputs; }
  int64_t w_size() const { return filters * depth; }
  int64_t columns_size() const { return depth * windows.outputs; }
  double flops() const {
    return 2.0 * static_cast<double>(samples * groups) * static_cast<double>(w_size()) *
           static_cast<double>(windows.outputs);
  }
};

inline ConvSizes sizes_of(const ConvArgs& a, const Shape& x, const Shape& w) {
  ConvSizes s;
  s.windows = windows_of(a, x);
  require(w.rank() == x.rank(), "filter is {}, but of X {} it has {} dimensions", w, x, x.rank());
  for (int d = 2; d < x.rank(); ++d) {
    const int64_t kernel = s.windows.axis[kWindowDims - x.rank() + d].kernel;
    require(w[d] == kernel, "filter is {}, but a window has {} elements along dimension {}", w, kernel, d);
  }
  s.samples = x[0];
  s.groups = a.group;
  require(x[1] % a.group == 0 && w[0] % a.group == 0 && w[1] == x[1] / a.group,
          "filter is {}, but X {} in {} groups takes [M, {}, ...], with an M that the groups divide", w, x, a.group,
          x[1] / a.group);
  s.channels = w[1];
  s.filters = w[0] / a.group;
  s.depth = s.channels * s.windows.places;
  int64_t columns = 0;
  require(!__builtin_mul_overflow(s.depth, s.windows.outputs, &columns) &&
              !__builtin_mul_overflow(columns, s.samples * s.groups, &columns),
          "X {} and filter {} take more columns than can be counted", x, w);
  return s;
}

// Where the windows' elements stand in a line of columns, which is what element (k0, k1, k2) of the windows along the
// last dimension covers.
struct ColumnLine {
  int64_t column = 0;          // its first element in the columns
  int64_t begin = 0, end = 0;  // those of its outputs that are inside of X
  int64_t x = 0;               // the element of X that `begin` is
};

// Calls fn for each line of the columns of one channel.
template <class Fn>
void each_column_line(const Windows& w, Fn fn) {
  const WindowAxis &a = w.axis[0], &b = w.axis[1], &c = w.axis[2];
  ColumnLine line;
  for (int64_t i = 0; i < a.kernel; ++i)
    for (int64_t j = 0; j < b.kernel; ++j)
      for (int64_t k = 0; k < c.kernel; ++k)
        for (int64_t p = 0; p < a.out; ++p)
          for (int64_t q = 0; q < b.out; ++q, line.column += c.out) {
            const int64_t at_a = a.place(p, i), at_b = b.place(q, j);
            const bool inside = a.inside(at_a) && b.inside(at_b);
            line.begin = inside ? c.first(k) : 0;
            line.end = inside ? c.last(k) : 0;
            line.x = inside ? (at_a * b.in + at_b) * c.in + c.place(line.begin, k) : 0;
            fn(line);
          }
}

}  // namespace stepnet
