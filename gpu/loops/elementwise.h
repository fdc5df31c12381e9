// Elementwise kernels: y = fn(x) and c = op(a, b) with broadcasting. fn and op are the CPU kernel's own where it has
// them as functors; what is constexpr runs on the device, too. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"
#include "operators/loops/broadcast.h"

namespace stepnet::gpu {

// y[i] = fn(x[i])
template <class T, class R, class Fn>
void map(const Call& call, In<T> x, Out<R> y, Fn fn) {
  each(call, y.size, [=] __device__(size_t i) { y[i] = fn(x[i]); });
}
// c[i] = fn(a[i], b[i])
template <class A, class B, class R, class Fn>
void map(const Call& call, In<A> a, In<B> b, Out<R> c, Fn fn) {
  each(call, c.size, [=] __device__(size_t i) { c[i] = fn(a[i], b[i]); });
}

// Where the operands of element i of the result are.
struct BroadcastIndex {
  int rank = 0;
  int64_t size[Shape::kMaxRank] = {}, a_step[Shape::kMaxRank] = {}, b_step[Shape::kMaxRank] = {};

  explicit BroadcastIndex(const Broadcast& shapes) : rank(shapes.out.rank()) {
    int64_t a = 1, b = 1;
    for (int d = rank - 1; d >= 0; --d) {
      size[d] = shapes.out[d];
      a_step[d] = shapes.a[d] == 1 ? 0 : a;
      b_step[d] = shapes.b[d] == 1 ? 0 : b;
      a *= shapes.a[d];
      b *= shapes.b[d];
    }
  }
  __host__ __device__ void find(size_t i, size_t& a, size_t& b) const {
    auto rest = static_cast<int64_t>(i);
    int64_t at_a = 0, at_b = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t index = rest % size[d];
      rest /= size[d];
      at_a += index * a_step[d];
      at_b += index * b_step[d];
    }
    a = static_cast<size_t>(at_a);
    b = static_cast<size_t>(at_b);
  }
};

// c = Op()(a, b) over broadcast operands; the GPU's elementwise_binary.
template <class Op, class T, class R>
void binary(const BroadcastArgs& args, In<T> a, In<T> b, Out<R> c, Call& call) {
  const Broadcast shapes = broadcast_shapes(args, call.in(0).shape(), call.in(1).shape());
  if (shapes.plain()) return map(call, a, b, c, Op());
  const BroadcastIndex index(shapes);
  each(call, c.size, [=] __device__(size_t i) {
    size_t at_a = 0, at_b = 0;
    index.find(i, at_a, at_b);
    c[i] = Op()(a[at_a], b[at_b]);
  });
}

}  // namespace stepnet::gpu
