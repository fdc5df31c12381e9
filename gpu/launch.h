// How a CUDA kernel of an operator is written: gpu::In and gpu::Out in its parameters, and each() for elementwise work.
//
//   void forward(Call& call, gpu::In<float> x, gpu::Out<float> y) {
//     gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = tanhf(x[i]); });
//   }
//   REGISTER(tanh_cuda) { return cuda("Tanh", forward); }
//
// Threads: work is queued on the run's stream; nothing here waits for it.
#pragma once

#include <algorithm>

#include "core/operator.h"
#include "gpu/device.h"

namespace stepnet::gpu {

// The elements of a tensor on a device: copied into kernels by value, dereferenced there only.
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

inline cudaStream_t stream_of(const Call& call) { return static_cast<cudaStream_t>(call.run.stream); }

template <class Fn>
__global__ void each_kernel(size_t count, Fn fn) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) fn(i);
}

// Calls fn(i) on the device for every i < count, in any order; on the device of the call's first output.
template <class Fn>
void each(const Call& call, size_t count, Fn fn) {
  if (count == 0) return;  // a launch of no blocks is an error
  constexpr size_t kThreads = 256;
  constexpr size_t kMaxBlocks = size_t{1} << 16;
  const DeviceScope scope(call.out(0).device().index);
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
  each_kernel<<<blocks, kThreads, 0, stream_of(call)>>>(count, fn);
  check(cudaGetLastError());
}

// The tensor's elements; throws Error if it has another type, or is not on a CUDA device.
template <class T, class S>
S device_span(S span, const Tensor& tensor, decltype(S::data) data) {
  require(tensor.dtype() == dtype_of<T>(), "a tensor of {} is needed here, not {}", dtype_name(dtype_of<T>()),
          tensor.str());
  require(tensor.size() == 0 || tensor.device().kind == DeviceKind::cuda, "{} is on {}, where a GPU cannot read it",
          tensor.str(), tensor.device().str());
  span.data = data;
  span.size = static_cast<size_t>(tensor.size());
  return span;
}

}  // namespace stepnet::gpu

namespace stepnet {

// Lets a kernel for `cuda(...)` name these as its parameters; absent inputs and unwanted outputs are empty.
template <class T>
struct KernelParam<gpu::In<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static gpu::In<T> take(CallCursor& c) {
    const int i = c.in++;
    if (!c.call.has(i)) return {};
    const Tensor& t = c.call.in(i);
    return gpu::device_span<T>(gpu::In<T>{}, t, reinterpret_cast<const T*>(t.raw()));
  }
};
template <class T>
struct KernelParam<gpu::Out<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static gpu::Out<T> take(CallCursor& c) {
    const int o = c.out++;
    if (!c.call.wants(o)) return {};
    Tensor& t = c.call.out(o);
    return gpu::device_span<T>(gpu::Out<T>{}, t, reinterpret_cast<T*>(t.raw()));
  }
};

}  // namespace stepnet
