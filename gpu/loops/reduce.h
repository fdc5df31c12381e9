// Reductions over any dimensions and of any size; and elements that go with a tensor in which they repeat.
//
// reduce_dims and reduce take functors or extended lambdas, and are as gpu/runtime/launch.h's reduce_axis, which works
// well where there are many results: here many values of few results are left to several teams, whose results are
// joined in order. `first` may count several times, so it must be what changes nothing. Threads: as
// gpu/runtime/launch.h.
#pragma once

#include <functional>

#include "gpu/loops/temporary.h"

namespace stepnet::gpu {

// Where the i-th element of some dimensions of a tensor stands in it.
struct Strided {
  int groups = 0;
  Divider size[Shape::kMaxRank];  // innermost first
  size_t step[Shape::kMaxRank] = {};

  // The next dimension, from the innermost on; a step of 0 repeats.
  void add(int64_t dim, size_t dim_step) {
    if (dim == 1) return;
    const auto n = static_cast<size_t>(dim);
    if (groups > 0 && dim_step == size[groups - 1].divisor() * step[groups - 1]) {
      size[groups - 1] = Divider(size[groups - 1].divisor() * n);
      return;
    }
    size[groups] = Divider(n);
    step[groups++] = dim_step;
  }
  constexpr size_t find(size_t i) const {
    size_t at = 0;
    for (int g = 0; g + 1 < groups; ++g) {
      const auto [rest, index] = size[g].split(i);
      at += index * step[g];
      i = rest;
    }
    return groups > 0 ? at + i * step[groups - 1] : 0;
  }
};

// Of each element of `all`, its place in `repeated`, which has all's size or 1 in each dimension.
inline Strided places_of(const Shape& all, const Shape& repeated) {
  Strided places;
  size_t step = 1;
  for (int d = all.rank() - 1; d >= 0; --d) {
    places.add(all[d], repeated[d] == 1 ? 0 : step);
    step *= static_cast<size_t>(repeated[d]);
  }
  return places;
}

// x, to be reduced to y, which has x's size or 1 in each dimension: value c of result (o, i) stands at outer.find(o) +
// along.find(c) + i.
struct ReducedDims {
  Axis axis;
  Strided outer, along;

  ReducedDims(const Shape& x, const Shape& y) {
    size_t step = 1;
    bool innermost = true;
    for (int d = x.rank() - 1; d >= 0; --d) {
      if (x[d] == 1) continue;
      if (y[d] == 1) {
        axis.count *= x[d];
        along.add(x[d], step);
        innermost = false;
      } else if (innermost) {
        axis.inner *= x[d];
      } else {
        axis.outer *= x[d];
        outer.add(x[d], step);
      }
      step *= static_cast<size_t>(x[d]);
    }
  }
};

constexpr size_t kPartValues = 16 * kTeam;  // that are worth a team of their own
constexpr size_t kManyTeams = 1024;         // that fill a device

// Into how many parts each line of values is divided.
inline size_t parts_of(const Axis& axis) {
  const auto inner = static_cast<size_t>(axis.inner);
  const size_t teams = static_cast<size_t>(axis.outer) * (inner < kTile ? inner : (inner + kTile - 1) / kTile);
  const size_t part = inner < kTile ? kPartValues : kPartValues / kTile;
  return std::max<size_t>(1, std::min(static_cast<size_t>(axis.count) / part, kManyTeams / teams));
}

// store(o, i, op over value(o, c, i) for all c, from `first`), for every o and i.
template <class T, class Value, class Op, class Store>
void reduce(const Call& call, const Axis& axis, T first, Value value, Op op, Store store) {
  const auto outer = static_cast<size_t>(axis.outer), count = static_cast<size_t>(axis.count),
             inner = static_cast<size_t>(axis.inner);
  if (outer * inner == 0) return;
  const size_t parts = parts_of(axis), size = (count + parts - 1) / parts;
  if (parts == 1) return reduce_axis(call, axis, first, value, op, store);
  const Temporary<T> scratch(call, static_cast<int64_t>(outer * parts * inner));
  T* const partial = scratch.data;
  const Divider lines(parts);
  const auto of_part = [=] __device__(size_t o, size_t k, size_t i) {
    const auto [line, part] = lines.split(o);
    const size_t c = part * size + k;
    return c < count ? value(line, c, i) : first;
  };
  const auto keep = [=] __device__(size_t o, size_t i, T all) { partial[o * inner + i] = all; };
  reduce_axis(call, {axis.outer * static_cast<int64_t>(parts), static_cast<int64_t>(size), axis.inner}, first, of_part,
              op, keep);
  const auto kept = [=] __device__(size_t o, size_t p, size_t i) { return partial[(o * parts + p) * inner + i]; };
  reduce_axis(call, {axis.outer, static_cast<int64_t>(parts), axis.inner}, first, kept, op, store);
}

// store(j, op over value(k) for all places k of x that are reduced to y's element j).
template <class T, class Value, class Op, class Store>
void reduce_dims(const Call& call, const ReducedDims& dims, T first, Value value, Op op, Store store) {
  const Strided outer = dims.outer, along = dims.along;
  const auto inner = static_cast<size_t>(dims.axis.inner);
  const auto at = [=] __device__(size_t o, size_t c, size_t i) { return value(outer.find(o) + along.find(c) + i); };
  const auto put = [=] __device__(size_t o, size_t i, T all) { store(o * inner + i, all); };
  reduce(call, dims.axis, first, at, op, put);
}

}  // namespace stepnet::gpu
