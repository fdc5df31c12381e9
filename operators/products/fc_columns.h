// The arguments and sizes of FCColumns and its gradient; see fc_columns.cc.
#pragma once

#include "operators/products/fc_sizes.h"

namespace stepnet {

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
