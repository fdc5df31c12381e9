// Elementwise kernels: y = fn(x) and c = op(a, b) with broadcasting. fn and op are the CPU kernel's own where it has
// them as functors; what is constexpr runs on the device, too. Where no operand is broadcast, threads read and write 16
// bytes at once if the addresses allow it. Threads: as gpu/runtime/launch.h.
#pragma once

#include <utility>

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"
#include "operators/loops/broadcast.h"

namespace stepnet::gpu {

// Neighbouring elements that a thread reads or writes at once.
template <class T, size_t kCount>
struct alignas(kCount * sizeof(T)) Several {
  T values[kCount];
};

// How many: 16 bytes of the widest type.
template <class... T>
constexpr size_t kSeveral = 16 / std::max({sizeof(T)...});

// The elements of a group.
template <size_t kCount, class T>
__device__ const Several<T, kCount>& group_at(const T* elements, size_t group) {
  return reinterpret_cast<const Several<T, kCount>*>(elements)[group];
}
template <size_t kCount, class T>
__device__ Several<T, kCount>& group_at(T* elements, size_t group) {
  return reinterpret_cast<Several<T, kCount>*>(elements)[group];
}

// Whether an operand begins where a group may; null is one that is not there.
template <size_t kCount, class T>
bool begins_a_group(const T* operand) {
  return reinterpret_cast<uintptr_t>(operand) % (kCount * sizeof(T)) == 0;
}
// For how many whole groups of `count` elements a kernel takes one thread each; the elements behind them get a thread
// each. None if there are too few, or operands are not all `aligned`.
inline size_t groups_of(size_t size, size_t count, bool aligned) {
  return aligned && size / count >= kThreadsThatFill ? size / count : 0;
}

template <size_t k, class Fn, class... X>
__device__ auto apply_at(const Fn& fn, const X&... x) {
  return fn(x.values[k]...);
}
template <class R, class Fn, size_t... k, class... X>
__device__ Several<R, sizeof...(k)> apply_to_all(std::index_sequence<k...>, const Fn& fn, const X&... x) {
  return {{static_cast<R>(apply_at<k>(fn, x...))...}};
}
// to = fn(from...) of a group's elements.
template <size_t kCount, class R, class Fn, class... T>
__device__ void map_group(size_t group, R* to, const Fn& fn, const T*... from) {
  group_at<kCount>(to, group) =
      apply_to_all<R>(std::make_index_sequence<kCount>(), fn, group_at<kCount>(from, group)...);
}

// y[i] = fn(x[i])
template <class T, class R, class Fn>
void map(const Call& call, In<T> x, Out<R> y, Fn fn) {
  constexpr size_t kCount = kSeveral<T, R>;
  const size_t groups = groups_of(y.size, kCount, begins_a_group<kCount>(x.data) && begins_a_group<kCount>(y.data));
  each(call, y.size - groups * (kCount - 1), [=] __device__(size_t thread) {
    if (thread < groups) return map_group<kCount>(thread, y.data, fn, x.data);
    const size_t i = thread + groups * (kCount - 1);
    y[i] = fn(x[i]);
  });
}
// c[i] = fn(a[i], b[i])
template <class A, class B, class R, class Fn>
void map(const Call& call, In<A> a, In<B> b, Out<R> c, Fn fn) {
  constexpr size_t kCount = kSeveral<A, B, R>;
  const size_t groups =
      groups_of(c.size, kCount,
                begins_a_group<kCount>(a.data) && begins_a_group<kCount>(b.data) && begins_a_group<kCount>(c.data));
  each(call, c.size - groups * (kCount - 1), [=] __device__(size_t thread) {
    if (thread < groups) return map_group<kCount>(thread, c.data, fn, a.data, b.data);
    const size_t i = thread + groups * (kCount - 1);
    c[i] = fn(a[i], b[i]);
  });
}

// A functor of the type that kernels compute in, for elements.
template <class T, class Fn>
struct Widened {
  Fn fn;
  constexpr auto operator()(T x) const { return fn(static_cast<Accumulate<T>>(x)); }
};

// Where the operands of element i of the result are.
struct BroadcastIndex {
  int rank = 0;
  Divider size[Shape::kMaxRank];
  size_t a_step[Shape::kMaxRank] = {}, b_step[Shape::kMaxRank] = {};

  explicit BroadcastIndex(const Broadcast& shapes) : rank(shapes.out.rank()) {
    size_t a = 1, b = 1;
    for (int d = rank - 1; d >= 0; --d) {
      size[d] = Divider(static_cast<size_t>(shapes.out[d]));
      a_step[d] = shapes.a[d] == 1 ? 0 : a;
      b_step[d] = shapes.b[d] == 1 ? 0 : b;
      a *= static_cast<size_t>(shapes.a[d]);
      b *= static_cast<size_t>(shapes.b[d]);
    }
  }
  constexpr void find(size_t i, size_t& a, size_t& b) const {
    a = b = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const auto [rest, index] = size[d].split(i);
      i = rest;
      a += index * a_step[d];
      b += index * b_step[d];
    }
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
