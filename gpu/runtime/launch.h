// How a CUDA kernel of an operator is written: gpu::In and gpu::Out in its parameters, and these loops in its body.
//
//   void forward(Call& call, gpu::In<float> x, gpu::Out<float> y) {
//     gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = tanhf(x[i]); });
//   }
//   REGISTER(tanh_cuda) { return cuda("Tanh", forward); }
//
// A team is a block of threads that work on one thing together, a row for instance; sums are always taken in one order,
// so results have the same bits in every run. Files are compiled several at a time: each has a namespace of its name.
// Threads: work is queued on the current stream of the device; nothing here waits for it.
#pragma once

#include <algorithm>

#include "gpu/runtime/divider.h"
#include "gpu/runtime/faults.h"
#include "gpu/runtime/stream.h"
#include "stepnet/operator.h"
#include "stepnet/tensor.h"

namespace stepnet::gpu {

// The elements of a tensor on a device: copied into kernels by value, dereferenced there only. Null for a tensor of
// which only the shape is kept.
template <class T>
struct Span {
  T* data = nullptr;
  size_t size = 0;
  __host__ __device__ T& operator[](size_t i) const { return data[i]; }
};
template <class T>
struct In : Span<const T> {};
template <class T>
struct Out : Span<T> {};

// The device that the call runs on: that of its outputs, or of its inputs if it has none.
inline int device_of(const Call& call) {
  for (int o = 0; o < call.outputs(); ++o)
    if (call.wants(o) && call.out(o).device().kind == DeviceKind::cuda) return call.out(o).device().index;
  for (int i = 0; i < call.inputs(); ++i)
    if (call.has(i) && call.in(i).device().kind == DeviceKind::cuda) return call.in(i).device().index;
  return 0;
}
inline Device place_of(const Call& call) { return {DeviceKind::cuda, static_cast<int8_t>(device_of(call))}; }

// For kernels whose outputs' shapes depend on values: the output with this shape. An input's values on the host, for
// which all work queued so far is waited for, are copied_to(input, {}).
inline Tensor& sized_output(const Call& call, int o, DType dtype, const Shape& shape) {
  call.out(o).resize(dtype, shape, place_of(call));
  return call.out(o);
}

inline Bounds bounds(const Call& call, const char* what) { return bounds(device_of(call), what); }

constexpr unsigned kMaxBlocks = 1u << 16;
constexpr size_t kThreadsThatFill = size_t{1} << 16;  // a device: fewer are not worth having more to do each
constexpr unsigned kTeam = 256, kEach = 256;          // threads of a block
constexpr unsigned kWarp = 32;                        // threads that go together, and wait for each other for less
constexpr unsigned kTile = 32;                        // neighbouring elements that a team reads at once
#if defined(__CUDACC__)
template <class... P>
void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, cudaStream_t stream,
            std::type_identity_t<P>... args) {
  kernel<<<blocks, threads, 0, stream>>>(args...);
}
#endif

template <class Fn>
__global__ void each_kernel(size_t count, Fn fn) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) fn(i);
}

// Calls fn(i) on the device for every i < count, in any order.
template <class Fn>
void each(int device, size_t count, Fn fn) {
  if (count == 0) return;  // a launch of no blocks is an error
  const DeviceScope scope(device);
  const cudaStream_t stream = current_stream(device);
  const size_t blocks = std::min<size_t>((count + kEach - 1) / kEach, kMaxBlocks);
  launch(each_kernel<Fn>, static_cast<unsigned>(blocks), kEach, stream, count, fn);
  check_launch(stream);
}
template <class Fn>
void each(const Call& call, size_t count, Fn fn) {
  each(device_of(call), count, fn);
}

constexpr size_t kRoom = 16;  // bytes of shared memory per thread

// What a thread of a team knows. All threads of a team have to reach each call of sync and reduce.
struct Team {
  unsigned thread = 0;
  std::byte* room = nullptr;  // kRoom bytes for each thread, seen by all
  static constexpr unsigned size = kTeam;

  __device__ void sync() const { __syncthreads(); }
  // op over the values of all threads: ((v0 op v128) op (v64 op v192)) ..., on all threads.
  template <class T, class Op>
  __device__ T reduce(T value, Op op) const {
    return reduce_within(value, op, kTeam, 0, 1);
  }
  // The same of the `lanes` threads first, first + stride, ...; lanes is a power of two, and equal on all threads.
  template <class T, class Op>
  __device__ T reduce_within(T value, Op op, unsigned lanes, unsigned first, unsigned stride) const {
    static_assert(sizeof(T) <= kRoom);
    T* values = reinterpret_cast<T*>(room);
    sync();
    values[thread] = value;
    const unsigned lane = (thread - first) / stride;
    for (unsigned half = lanes / 2; half > 0; half /= 2) {
      sync();
      if (lane < half) values[thread] = op(values[thread], values[thread + half * stride]);
    }
    sync();
    return values[first];
  }
  // The same of each `lanes` neighbours; a power of two, of at least a warp's threads.
  template <class T, class Op>
  __device__ T reduce_neighbours(T value, Op op, unsigned lanes) const {
    static_assert(sizeof(T) <= kRoom);
    T* values = reinterpret_cast<T*>(room);
    const unsigned lane = thread & (lanes - 1);
    sync_neighbours(lanes);
    values[thread] = value;
    for (unsigned half = lanes / 2; half > 0; half /= 2) {
      sync_neighbours(lanes);
      if (lane < half) values[thread] = op(values[thread], values[thread + half]);
    }
    sync_neighbours(lanes);
    return values[thread - lane];
  }
  __device__ void sync_neighbours(unsigned lanes) const {
    if (lanes <= kWarp)
      __syncwarp();
    else
      sync();
  }
  template <class T>
  __device__ T sum(T value) const {
    return reduce(value, [](T a, T b) { return a + b; });
  }
};

template <class Fn>
__global__ void teams_kernel(size_t count, Fn fn) {
  alignas(kRoom) __shared__ std::byte room[kRoom * kTeam];
  const Team team{threadIdx.x, room};
  for (size_t i = blockIdx.x; i < count; i += gridDim.x) fn(i, team);
}

// Calls fn(i, team) on all threads of a team for every i < count.
template <class Fn>
void each_team(const Call& call, size_t count, Fn fn) {
  if (count == 0) return;
  const int device = device_of(call);
  const DeviceScope scope(device);
  const cudaStream_t stream = current_stream(device);
  launch(teams_kernel<Fn>, static_cast<unsigned>(std::min<size_t>(count, kMaxBlocks)), kTeam, stream, count, fn);
  check_launch(stream);
}

// A tensor seen as [outer, count, inner], to be reduced over `count`.
struct Axis {
  int64_t outer = 1, count = 1, inner = 1;
};

constexpr size_t kFewValues = 32;  // that one thread reduces faster than several

// Threads for each of several results of so many values: a warp, or more where each would have many of them.
constexpr unsigned lanes_for(size_t values) {
  constexpr size_t kEnough = 8;
  unsigned lanes = kWarp;
  while (lanes < kTeam && lanes * kEnough < values) lanes *= 2;
  return lanes;
}

// store(o, i, op over value(o, c, i) for all c, from `first`), for every o and i.
template <class T, class Value, class Op, class Store>
void reduce_axis(const Call& call, const Axis& axis, T first, Value value, Op op, Store store) {
  const size_t inner = static_cast<size_t>(axis.inner), count = static_cast<size_t>(axis.count);
  const size_t results = static_cast<size_t>(axis.outer) * inner;
  const Divider rows(inner);
  if (count <= kFewValues) {  // a thread for each result
    each(call, results, [=] __device__(size_t at) {
      const auto [o, i] = rows.split(at);
      T all = first;
      for (size_t c = 0; c < count; ++c) all = op(all, value(o, c, i));
      store(o, i, all);
    });
    return;
  }
  if (inner < kTile) {  // a warp for each result, or several
    const unsigned lanes = lanes_for(count), together = kTeam / lanes;
    each_team(call, (results + together - 1) / together, [=] __device__(size_t at, const Team& team) {
      const unsigned lane = team.thread & (lanes - 1);
      const size_t result = at * together + team.thread / lanes;
      const auto [o, i] = rows.split(result);
      T partial = first;
      if (result < results)
        for (size_t c = lane; c < count; c += lanes) partial = op(partial, value(o, c, i));
      partial = team.reduce_neighbours(partial, op, lanes);
      if (result < results && lane == 0) store(o, i, partial);
    });
    return;
  }
  // A team for kTile neighbours, whose threads read them row by row.
  const size_t tiles = (inner + kTile - 1) / kTile;
  const Divider lines(tiles);
  each_team(call, static_cast<size_t>(axis.outer) * tiles, [=] __device__(size_t at, const Team& team) {
    const unsigned column = team.thread % kTile, lane = team.thread / kTile, lanes = kTeam / kTile;
    const auto [o, tile] = lines.split(at);
    const size_t i = tile * kTile + column;
    T partial = first;
    if (i < inner)
      for (size_t c = lane; c < count; c += lanes) partial = op(partial, value(o, c, i));
    partial = team.reduce_within(partial, op, lanes, column, kTile);
    if (i < inner && lane == 0) store(o, i, partial);
  });
}

// The tensor's elements; throws Error if it has another type, or is not on a CUDA device.
template <class T, class S>
S device_span(S span, const Tensor& tensor, decltype(S::data) data) {
  require(tensor.dtype() == dtype_of<T>(), "a tensor of {} is needed here, not {}", dtype_name(dtype_of<T>()), tensor);
  const bool reachable = tensor.size() == 0 || !tensor.storage() || tensor.device().kind == DeviceKind::cuda;
  require(reachable, "{} is on {}, where a GPU cannot read it", tensor, tensor.device());
  span.data = data;
  span.size = static_cast<size_t>(tensor.size());
  return span;
}
template <class T>
In<T> in_span(const Tensor& t) {
  return device_span<T>(In<T>{}, t, reinterpret_cast<const T*>(t.raw()));
}
template <class T>
Out<T> out_span(Tensor& t) {
  return device_span<T>(Out<T>{}, t, reinterpret_cast<T*>(t.raw()));
}

// A parameter that says which element type a kernel is for, where none of its others does.
template <class T>
struct ElementType {};

}  // namespace stepnet::gpu

namespace stepnet {

// Lets a kernel for `cuda(...)` name these as its parameters; absent inputs and unwanted outputs are empty.
template <class T>
struct KernelParam<gpu::In<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static gpu::In<T> take(CallCursor& c) {
    const int i = c.in++;
    return c.call.has(i) ? gpu::in_span<T>(c.call.in(i)) : gpu::In<T>{};
  }
};
template <class T>
struct KernelParam<gpu::Out<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static gpu::Out<T> take(CallCursor& c) {
    const int o = c.out++;
    return c.call.wants(o) ? gpu::out_span<T>(c.call.out(o)) : gpu::Out<T>{};
  }
};
template <class T>
struct KernelParam<gpu::ElementType<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static gpu::ElementType<T> take(CallCursor&) { return {}; }
};

}  // namespace stepnet
