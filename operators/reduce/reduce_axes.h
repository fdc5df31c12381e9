// What the reductions share: X is reduced to Y over the dimensions `axes`, or over all if none is named. Y keeps them
// with size 1; with keepdims = 0 it loses them. A gradient operator has the inputs dY, X and Y.
//
// Results do not depend on the number of threads. Threads: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/compute/threads.h"
#include "operators/loops/broadcast.h"
#include "operators/reduce/reduce.h"

namespace stepnet {

class Reduction {
 public:
  Reduction(const ReduceArgs& args, const Shape& x) : leading_(x.rank()) {
    const std::array<bool, Shape::kMaxRank> reduced = reduced_dims(args, x.rank());
    Broadcast block;  // the dimensions from the first reduced one on, with Y repeated
    for (int i = 0; i < x.rank(); ++i) {
      if (reduced[i]) leading_ = std::min(leading_, i);
      if (reduced[i]) per_value_ *= x[i];
      if (!reduced[i] || args.keepdims) y_.push_back(reduced[i] ? 1 : x[i]);
      if (i < leading_) continue;
      block.out.push_back(x[i]);
      block.a.push_back(x[i]);
      block.b.push_back(reduced[i] ? 1 : x[i]);
    }
    blocks_ = x.size_between(0, leading_);
    x_size_ = block.a.size();
    y_size_ = block.b.size();
    runs_ = BroadcastRuns(block);
  }

  const Shape& y() const { return y_; }
  int leading() const { return leading_; }          // how many dimensions come before the first reduced one
  int64_t per_value() const { return per_value_; }  // elements of X for each of Y

  // Calls fn(run) for stretches of X, which begin at run.a. Their elements of Y begin at run.b, or if !run.b_moves are
  // one. All stretches of one element of Y come from one thread. fn must not throw.
  template <class Fn>
  void each_run(Fn fn) const {
    auto range = [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        runs_.each([&](BroadcastRun run) {
          run.a += n * x_size_;
          run.b += n * y_size_;
          fn(run);
        });
    };
    parallel_for(blocks_, 10.0 + 0.5 * static_cast<double>(x_size_), range);
  }

  // Calls fn(i, j) for each element i of X and its element j of Y.
  template <class Fn>
  void each_element(Fn fn) const {
    each_run([&](const BroadcastRun& run) {
      if (run.b_moves)
        for (int64_t i = 0; i < run.size; ++i) fn(run.a + i, run.b + i);
      else
        for (int64_t i = 0; i < run.size; ++i) fn(run.a + i, run.b);
    });
  }

 private:
  int leading_;
  Shape y_;
  int64_t per_value_ = 1, blocks_ = 1, x_size_ = 1, y_size_ = 1;
  BroadcastRuns runs_{Broadcast{}};
};

// In lanes of fixed position, which are joined in a fixed order.
template <class T, class Map, class Join>
ReductionType<T> reduce_run(const T* x, int64_t size, ReductionType<T> start, Map map, Join join) {
  using Wide = ReductionType<T>;
  constexpr int64_t kLanes = 8;
  std::array<Wide, kLanes> lanes;
  lanes.fill(start);
  const int64_t whole = size / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = join(lanes[j], map(static_cast<Wide>(x[i + j])));
  for (int64_t i = whole; i < size; ++i) lanes[i - whole] = join(lanes[i - whole], map(static_cast<Wide>(x[i])));
  for (int64_t j = 1; j < kLanes; ++j) lanes[0] = join(lanes[0], lanes[j]);
  return lanes[0];
}

// Each y is map(x) of its elements, joined. `start` is what nothing gives, and join(start, v) is v.
template <class T, class Map, class Join>
void reduce_values(const Reduction& reduction, In<T> x, Out<T> y, T start, Map map, Join join) {
  std::ranges::fill(y, start);
  reduction.each_run([&](const BroadcastRun& run) {
    const T* from = x.data() + run.a;
    T* to = y.data() + run.b;
    if (run.b_moves) {
#pragma omp simd
      for (int64_t i = 0; i < run.size; ++i) to[i] = join(to[i], map(from[i]));
    } else {
      const ReductionType<T> all = reduce_run(from, run.size, static_cast<ReductionType<T>>(start), map, join);
      *to = static_cast<T>(join(static_cast<ReductionType<T>>(*to), all));
    }
  });
}

template <class T, class Map>
void reduce_sum(const Reduction& reduction, In<T> x, Out<T> y, Map map) {
  reduce_values(reduction, x, y, T(0), map, [](auto a, auto b) { return a + b; });
}

// The extreme of each y's elements, of which `before(a, b)` says that a wins over b. NaN wins over all numbers.
template <class T, class Before>
void reduce_extreme(const Reduction& reduction, In<T> x, Out<T> y, T start, Before before) {
  reduce_values(
      reduction, x, y, start, [](auto v) { return v; },
      [before](auto a, auto b) {
        if constexpr (std::is_floating_point_v<decltype(b)>)
          return before(b, a) || std::isnan(b) ? b : a;
        else
          return before(b, a) ? b : a;
      });
}

inline void infer_reduction(const ReduceArgs& a, ShapeCall& c) {
  if (c.known(0)) c.set(0, c.dtype(0), Reduction(a, c.shape(0)).y());
}

// For reductions that nothing has no value of.
inline void infer_nonempty_reduction(const ReduceArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  const Reduction r(a, c.shape(0));
  require(r.per_value() > 0 || r.y().size() == 0,
          "X {} has no elements along the dimensions to be reduced; nothing has no maximum or minimum", c.shape(0));
  c.set(0, c.dtype(0), r.y());
}

inline void infer_reduction_gradient(const ReduceArgs& a, ShapeCall& c) {
  if (!c.known(1)) return;
  const Reduction r(a, c.shape(1));
  for (const auto& [i, name] : {std::pair{0, "dY"}, {2, "Y"}})
    if (c.known(i))
      require(c.shape(i) == r.y(), "{} is {}, but X {} is reduced to {}", name, c.shape(i), c.shape(1), r.y());
  c.set_like(0, 1);
}

template <int kX>
int reduction_rows(const ReduceArgs& a, const ShapeCall& c) {
  return c.known(kX) ? Reduction(a, c.shape(kX)).leading() : 0;
}

inline OpBuilder<ReduceArgs> builder_with_axes(const std::string& type) {
  OpBuilder<ReduceArgs> b(type);
  b.arg("axes", &ReduceArgs::axes, {}, "the dimensions to reduce, negative ones counted from the end; all if not given")
      .arg("keepdims", &ReduceArgs::keepdims, true, "whether they stay in the result, with size 1")
      .accepts("allow_broadcast_fastpath", "it chooses between two ways to the same result");
  return b;
}

// The reduction `type`, with all but its doc, kernels and derivative.
inline OpBuilder<ReduceArgs> reduction_op(const std::string& type, const std::string& result,
                                          void (*infer)(const ReduceArgs&, ShapeCall&) = infer_reduction) {
  OpBuilder<ReduceArgs> b = builder_with_axes(type);
  b.input("X", "any shape")
      .output("Y", result)
      .shape(infer)
      .rowwise(reduction_rows<0>)
      .example({"X=2,3"})
      .example({"X=2,3,2"}, {"axes=1"})
      .example({"X=2,3,2"}, {"axes=-1,0", "keepdims=false"})
      .example({"X=3,1,2"}, {"axes=0,1", "keepdims=false"})
      .example({"X=0,2"}, {"axes=1"});
  return b;
}

// Its gradient operator, with all but its kernels and derivatives. A Y that is not read may be left out; nets of the
// public format have it.
inline OpBuilder<ReduceArgs> reduction_gradient_op(const std::string& type, bool reads_x, bool reads_y) {
  OpBuilder<ReduceArgs> b = builder_with_axes(type + "Gradient");
  b.doc("Gradient of " + type + ".").input("dY", "gradient of Y").input("X", type + "'s X");
  if (!reads_x) b.shape_only();
  b.input("Y", type + "'s Y");
  if (!reads_y) b.shape_only().optional();
  b.output("dX", "like X").shape(infer_reduction_gradient).rowwise(reduction_rows<1>);
  return b;
}

}  // namespace stepnet
