// The arguments of FC, FCTransposed, FCColumns and their gradients, and the sizes of the product that each is; see
// fc.cc. Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "stepnet/error.h"
#include "stepnet/matmul.h"
#include "stepnet/operator.h"

namespace stepnet {

struct FcSizes {
  int64_t m = 0, n = 0, k = 0;
  int64_t columns = 0;      // of W
  int64_t first = 0;        // of them in the window
  bool transposed = false;  // W is [k, n], and has no window
  bool whole() const { return transposed || k == columns; }
  ColumnsIn in_w() const { return transposed ? ColumnsIn{} : ColumnsIn{first, columns}; }
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

inline Shape fc_output_shape(int32_t axis, const Shape& x, int64_t n) {
  Shape y(x.dims().first(canonical_axis(axis, x.rank())));
  y.push_back(n);
  return y;
}

struct FcArgs {
  int32_t axis = 1;
  int32_t axis_w = 1;
};

inline FcSizes sizes_of(const FcArgs& a, const Shape& x, const Shape& w) {
  const int axis = canonical_axis(a.axis, x.rank()), axis_w = canonical_axis(a.axis_w, w.rank());
  return {.m = x.size_between(0, axis),
          .n = w.size_between(0, axis_w),
          .k = x.size_between(axis, x.rank()),
          .columns = w.size_between(axis_w, w.rank())};
}

// The rows of X have `row` values from the axis on, but W takes rows of `taken`.
[[noreturn]] inline void refuse_rows(const Shape& x, int64_t row, int axis, const Shape& w, int64_t taken) {
  std::string fix;
  for (int other = 0; other < x.rank(); ++other)
    if (x.size_between(other, x.rank()) == taken) fix = fmt::format("give it the argument axis: {}", other);
  throw Error(
      fmt::format("X {} has rows of {} values from axis {} on, but W {} takes rows of {}", x, row, axis, w, taken),
      fix);
}

inline std::optional<FcSizes> sizes_of(const FcArgs& a, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return std::nullopt;
  const Shape &x = c.shape(0), &w = c.shape(1);
  const FcSizes s = sizes_of(a, x, w);
  if (!s.whole()) refuse_rows(x, s.k, canonical_axis(a.axis, x.rank()), w, s.columns);
  return s;
}

inline FcSizes sizes_of(const FcArgs& a, const Call& c) { return sizes_of(a, c.in(0).shape(), c.in(1).shape()); }

struct FcTransposedArgs {
  int32_t axis = 1;
  int32_t axis_w = 1;
};

inline FcSizes sizes_of(const FcTransposedArgs& a, const Shape& x, const Shape& w) {
  const int axis = canonical_axis(a.axis, x.rank()), axis_w = canonical_axis(a.axis_w, w.rank());
  return {.m = x.size_between(0, axis),
          .n = w.size_between(axis_w, w.rank()),
          .k = w.size_between(0, axis_w),
          .transposed = true};
}

inline std::optional<FcSizes> sizes_of(const FcTransposedArgs& a, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return std::nullopt;
  const Shape &x = c.shape(0), &w = c.shape(1);
  const FcSizes s = sizes_of(a, x, w);
  const int axis = canonical_axis(a.axis, x.rank());
  const int64_t row = x.size_between(axis, x.rank());
  if (row != s.k) refuse_rows(x, row, axis, w, s.k);
  return s;
}

inline FcSizes sizes_of(const FcTransposedArgs& a, const Call& c) {
  return sizes_of(a, c.in(0).shape(), c.in(1).shape());
}

struct FcColumnsArgs {
  int32_t axis = 1;
  int64_t first = 0;
  int64_t before = 0;
  bool from_end = false;
};

inline int64_t fc_part_width(const Shape& part, int32_t axis) {
  return part.size_between(canonical_axis(axis, part.rank()), part.rank());
}

// `part(i)` is the shape of part i of the others, of which there are `parts`.
template <class Part>
FcSizes sizes_of(const FcColumnsArgs& a, const Shape& x, const Shape& w, int parts, Part part) {
  require(w.rank() >= 1, "W {} has no columns", w);
  const int axis = canonical_axis(a.axis, x.rank());
  FcSizes s{x.size_between(0, axis), w[0], x.size_between(axis, x.rank()), w.size_between(1, w.rank())};
  require(a.before <= parts, "argument \"before\" is {}, but there are {} other parts", a.before, parts);
  require(a.first == 0 || (parts == 0 && !a.from_end),
          "argument \"first\" is {}, but the other parts, or \"from_end\", say already where the columns begin",
          a.first);
  int64_t in_front = a.first, behind = 0;
  for (int i = 0; i < parts; ++i) {
    const Shape& other = part(i);
    require(other.rank() == x.rank(), "X {} and the part {} beside it differ in their number of dimensions", x, other);
    int64_t& side = i < a.before ? in_front : behind;
    require(!__builtin_add_overflow(side, fc_part_width(other, a.axis), &side), "the parts are too large");
  }
  s.first = a.from_end ? s.columns - s.k - behind : in_front;
  require(s.first >= 0 && s.first <= s.columns && s.k <= s.columns - s.first,
          "X {} takes {} columns of W {} from column {} on, but W has {}", x, s.k, w, s.first, s.columns);
  const bool all = a.from_end ? a.before > 0 : parts > a.before;
  require(!all || in_front + s.k + behind == s.columns,
          "X {} and the parts beside it have rows of {} values from axis {} on, but W {} takes rows of {}", x,
          in_front + s.k + behind, axis, w, s.columns);
  return s;
}

// The other parts follow input 2, which is b or dY.
constexpr int kFcParts = 3;

inline int fc_parts_of(int inputs) { return std::max(inputs - kFcParts, 0); }

inline bool fc_sizes_known(const ShapeCall& c) {
  bool known = c.known(0) && c.known(1);
  for (int i = kFcParts; i < c.inputs(); ++i) {
    require(c.has(i), "part {} has an empty name", i - kFcParts);
    known = known && c.known(i);
  }
  return known;
}

inline std::optional<FcSizes> sizes_of(const FcColumnsArgs& a, const ShapeCall& c) {
  if (!fc_sizes_known(c)) return std::nullopt;
  const auto part = [&](int i) -> const Shape& { return c.shape(kFcParts + i); };
  return sizes_of(a, c.shape(0), c.shape(1), fc_parts_of(c.inputs()), part);
}

inline FcSizes sizes_of(const FcColumnsArgs& a, const Call& c) {
  const auto part = [&](int i) -> const Shape& { return c.in(kFcParts + i).shape(); };
  return sizes_of(a, c.in(0).shape(), c.in(1).shape(), fc_parts_of(c.inputs()), part);
}

}  // namespace stepnet
