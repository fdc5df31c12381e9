// The kernel of C = A op B over broadcast operands, for Add, Sub and Mul.
#pragma once

#include <functional>

#include "core/parallel.h"
#include "operators/broadcast.h"

namespace stepnet {

constexpr double kBinaryCost = 0.3;  // about the nanoseconds of one element, for parallel_for

template <class Op, class T>
void apply_run(const BroadcastRun& run, const T* a, const T* b, T* c) {
  a += run.a;
  b += run.b;
  c += run.out;
  if (run.a_moves && run.b_moves) {
#pragma omp simd
    for (int64_t i = 0; i < run.size; ++i) c[i] = Op()(a[i], b[i]);
  } else if (run.a_moves) {
    const T right = *b;
#pragma omp simd
    for (int64_t i = 0; i < run.size; ++i) c[i] = Op()(a[i], right);
  } else {
    const T left = *a;
    const int64_t step = run.b_moves ? 1 : 0;
    for (int64_t i = 0; i < run.size; ++i) c[i] = Op()(left, b[i * step]);
  }
}

template <class Op, class T>
void elementwise_binary(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  const Broadcast shapes = broadcast_shapes(args, call.in(0).shape(), call.in(1).shape());
  if (!shapes.plain())
    return BroadcastRuns(shapes).each(
        [&](const BroadcastRun& run) { apply_run<Op>(run, a.data(), b.data(), c.data()); });
  auto range = [&](int64_t begin, int64_t end) {
    apply_run<Op>(BroadcastRun{begin, begin, begin, end - begin, true, true}, a.data(), b.data(), c.data());
  };
  parallel_for(static_cast<int64_t>(c.size()), kBinaryCost, std::ref(range));
}

}  // namespace stepnet
