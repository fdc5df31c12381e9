// The arguments and sizes of FC and its gradient; see fc.cc.
#pragma once

#include "operators/products/fc_sizes.h"

namespace stepnet {

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

inline std::optional<FcSizes> sizes_of(const FcArgs& a, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return std::nullopt;
  const Shape &x = c.shape(0), &w = c.shape(1);
  const FcSizes s = sizes_of(a, x, w);
  require(s.whole(), "X {} has rows of {} values from axis {} on, but W {} takes rows of {}", x, s.k,
          canonical_axis(a.axis, x.rank()), w, s.columns);
  return s;
}

inline FcSizes sizes_of(const FcArgs& a, const Call& c) { return sizes_of(a, c.in(0).shape(), c.in(1).shape()); }

}  // namespace stepnet
