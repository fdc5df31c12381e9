// The arguments and sizes of FCTransposed and its gradient; see fc_transposed.cc.
#pragma once

#include "operators/products/fc_sizes.h"

namespace stepnet {

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
  require(row == s.k, "X {} has rows of {} values from axis {} on, but W {} takes rows of {}", x, row, axis, w, s.k);
  return s;
}

inline FcSizes sizes_of(const FcTransposedArgs& a, const Call& c) {
  return sizes_of(a, c.in(0).shape(), c.in(1).shape());
}

}  // namespace stepnet
