// A stand-in for CUDA's runtime on the CPU, for machines without a GPU: gpu/ is compiled against it as plain C++ and
// its kernels, its allocator and its streams run in tests, under sanitizers too.
//
// It is as unhelpful as the real one may be: what is queued on a stream runs only when somebody waits for it, and
// before it only what events order before it. So a missing wait is seen as a wrong result, and a block that is reused
// too early, too. Kernels run thread by thread, in blocks of as many threads as on a real device; those that
// synchronise run as fibers. There are as many devices as the environment variable STEPNET_EMULATED_GPUS says, none if
// it is not set. Threads: one lock for all.
#pragma once

#include <math.h>  // NOLINT(modernize-deprecated-headers): exp and its like for float, outside of std

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include "tests/gpu/emulated/calls.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureIsolation = 905
};
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2, cudaStreamNonBlocking = 1,
                   cudaHostAllocPortable = 1;

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

struct EmulatedIndex {
  unsigned x = 0;
};
inline thread_local EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
inline void __syncwarp() { __syncthreads(); }
inline void __threadfence_system() {}
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}

namespace emulated {

void enqueue(cudaStream_t stream, std::function<void()> work);
template <class Work>
void enqueue(cudaStream_t stream, Work work) {
  const Inside inside;
  enqueue(stream, std::function<void()>(std::move(work)));
}
// All threads of one block.
void run_block(unsigned block, unsigned blocks, unsigned threads, const std::function<void()>& body);

}  // namespace emulated

namespace stepnet::gpu {

// gpu/runtime/launch.h has that of CUDA.
template <class... P>
void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, cudaStream_t stream,
            std::type_identity_t<P>... args) {
  emulated::count_call("launch");
  emulated::enqueue(stream, [=] {
    const std::function<void()> body = [&] { kernel(args...); };
    for (unsigned b = 0; b < blocks; ++b) emulated::run_block(b, blocks, threads, body);
  });
}

}  // namespace stepnet::gpu
