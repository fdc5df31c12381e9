// Streams, events, graphs and memory of the imitated runtime; see cuda_runtime.h.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/device_memory.h"

namespace emulated {
namespace {

thread_local int inside_of = 0;
std::mutex& lock_of_calls() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
std::map<std::string, int64_t, std::less<>>& counted_calls() {
  static auto& all = *new std::map<std::string, int64_t, std::less<>>;
  return all;
}

}  // namespace

Inside::Inside() { ++inside_of; }
Inside::~Inside() { --inside_of; }
bool inside() { return inside_of > 0; }

void count_call(const char* name) {
  const Inside here;
  const std::lock_guard lock(lock_of_calls());
  auto& all = counted_calls();
  const auto known = all.find(std::string_view(name));
  ++(known != all.end() ? known : all.emplace(name, 0).first)->second;
}
std::map<std::string, int64_t, std::less<>> calls() {
  const std::lock_guard lock(lock_of_calls());
  return counted_calls();
}

}  // namespace emulated

namespace {

using Work = std::function<void()>;

struct Call {
  explicit Call(const char* name) { emulated::count_call(name); }
  emulated::Inside inside = {};
};

std::recursive_mutex& lock_of_all() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}
using Lock = std::lock_guard<std::recursive_mutex>;

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t fails(cudaError_t error) {
  last_error = error;
  return error;
}

}  // namespace

struct CUgraph_st {
  std::vector<Work> work;
  bool invalidated = false;  // a call was made that a capture prohibits
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

// A point in a stream; `reached` when the stream has come to it.
struct EventPoint {
  CUstream_st* stream = nullptr;
  bool reached = false;
  std::chrono::steady_clock::time_point when = {};
};
struct CUevent_st {
  std::shared_ptr<EventPoint> point;
  CUgraph_st* capture = nullptr;
};
struct CUstream_st {
  std::deque<Work> queue;
  bool running = false;
  CUgraph_st* capture = nullptr;
  bool began = false;  // the capture
};

namespace {

CUstream_st& stream_at(cudaStream_t stream) {
  static auto& legacy = *new CUstream_st;
  return stream ? *stream : legacy;
}

std::vector<CUstream_st*>& all_streams() {
  static auto& streams = *new std::vector<CUstream_st*>;
  return streams;
}

// As in CUDA, calls that could wait for the device are prohibited while the calling thread captures, unless it captures
// in relaxed mode or has set that mode, and they invalidate the capture.
thread_local CUgraph_st* capture_here = nullptr;
thread_local cudaStreamCaptureMode mode_here = cudaStreamCaptureModeGlobal;
bool prohibited() {
  if (!capture_here || mode_here == cudaStreamCaptureModeRelaxed) return false;
  capture_here->invalidated = true;
  return true;
}

// `until`: a point in this stream, or null for all of its work. What is queued behind work that throws never runs: it
// may be a copy to where somebody who has seen the error no longer is.
void run_stream(CUstream_st& stream, const EventPoint* until) {
  while (!stream.queue.empty() && !(until && until->reached)) {
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    try {
      work();
    } catch (...) {
      stream.queue.clear();
      throw;
    }
  }
}

void run_until(const std::shared_ptr<EventPoint>& point) {
  if (point && !point->reached && point->stream) run_stream(*point->stream, point.get());
}

// Of all devices together: 16 GiB, or as many bytes as the environment variable STEPNET_EMULATED_BYTES says.
struct DeviceMemory {
  size_t total = size_t{1} << 34, taken = 0;
  std::map<void*, size_t> blocks;
};
DeviceMemory& device_memory() {
  static auto& memory = *new DeviceMemory;
  if (const char* text = std::getenv("STEPNET_EMULATED_BYTES")) memory.total = std::strtoull(text, nullptr, 10);
  return memory;
}

std::map<void*, size_t>& pinned() {
  static auto& blocks = *new std::map<void*, size_t>;
  return blocks;
}

bool is_within(const std::map<void*, size_t>& blocks, const void* data) {
  auto it = blocks.upper_bound(const_cast<void*>(data));
  if (it == blocks.begin()) return false;
  --it;
  return static_cast<const char*>(data) < static_cast<const char*>(it->first) + it->second;
}
bool is_pinned(const void* data) { return is_within(pinned(), data); }

}  // namespace

namespace emulated {

void enqueue(cudaStream_t stream, std::function<void()> work) {
  const Lock lock(lock_of_all());
  CUstream_st& s = stream_at(stream);
  if (s.capture)
    s.capture->work.push_back(std::move(work));
  else
    s.queue.push_back(std::move(work));
}

bool is_device_memory(const void* data) { return is_within(device_memory().blocks, data); }

}  // namespace emulated

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "operation not permitted when stream is capturing";
  }
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    default:
      return "cudaErrorStreamCaptureUnsupported";
  }
}
cudaError_t cudaGetLastError() {
  const Call call(__func__);
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call(__func__);
  const char* text = std::getenv("STEPNET_EMULATED_GPUS");
  *count = text ? std::atoi(text) : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  const Call call(__func__);
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const Call call(__func__);
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return fails(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  if (prohibited()) return fails(cudaErrorStreamCaptureUnsupported);
  DeviceMemory& memory = device_memory();
  if (memory.taken + bytes > memory.total) return fails(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (!*data) return fails(cudaErrorMemoryAllocation);
  memory.taken += memory.blocks[*data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  if (prohibited()) return fails(cudaErrorStreamCaptureUnsupported);
  for (CUstream_st* stream : all_streams()) run_stream(*stream, nullptr);
  device_memory().taken -= device_memory().blocks[data];
  device_memory().blocks.erase(data);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  if (prohibited()) return fails(cudaErrorStreamCaptureUnsupported);
  *data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  pinned()[*data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  pinned().erase(data);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  *total = device_memory().total;
  *free_bytes = *total - device_memory().taken;
  return cudaSuccess;
}

// Pageable memory is read or written before the call returns, pinned memory whenever the stream comes to it.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {
    auto copy =
        std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    emulated::enqueue(stream, [=] { std::memcpy(to, copy->data(), bytes); });
    return cudaSuccess;
  }
  emulated::enqueue(stream, [=] { std::memmove(to, from, bytes); });
  if (kind == cudaMemcpyDeviceToHost && !is_pinned(to)) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const Call call(__func__);
  emulated::enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  *stream = new CUstream_st;
  all_streams().push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  run_stream(*stream, nullptr);
  std::erase(all_streams(), stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  CUstream_st& s = stream_at(stream);
  if (s.capture) {
    s.capture->invalidated = true;
    return fails(cudaErrorStreamCaptureUnsupported);
  }
  run_stream(s, nullptr);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  CUstream_st& s = stream_at(stream);
  if (event->capture) {  // the stream joins the capture; its work is recorded in the order of the calls
    s.capture = event->capture;
    return cudaSuccess;
  }
  if (s.capture) {
    s.capture->invalidated = true;
    return fails(cudaErrorStreamCaptureIsolation);
  }
  s.queue.emplace_back([point = event->point] { run_until(point); });
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  *status = stream_at(stream).capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  const Call call(__func__);
  std::swap(*mode, mode_here);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  if (!stream || stream_at(stream).capture) return fails(cudaErrorStreamCaptureUnsupported);
  stream_at(stream).capture = new CUgraph_st;
  if (mode != cudaStreamCaptureModeRelaxed) capture_here = stream_at(stream).capture;
  stream_at(stream).began = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  CUstream_st& s = stream_at(stream);
  if (!s.began) return fails(cudaErrorInvalidValue);
  *graph = s.capture;
  if (capture_here == *graph) capture_here = nullptr;
  for (CUstream_st* other : all_streams())
    if (other->capture == *graph) other->capture = nullptr;
  s.capture = nullptr;
  s.began = false;
  if (!(*graph)->invalidated) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  return fails(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  const Call call(__func__);
  *exec = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const Call call(__func__);
  for (const Work& work : exec->work) emulated::enqueue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Call call(__func__);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Call call(__func__);
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const Call call(__func__);
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call(__func__);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  CUstream_st& s = stream_at(stream);
  event->capture = s.capture;
  if (s.capture) return cudaSuccess;
  event->point = std::make_shared<EventPoint>(EventPoint{&s});
  s.queue.emplace_back([point = event->point] {
    point->reached = true;
    point->when = std::chrono::steady_clock::now();
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Call call(__func__);
  const Lock lock(lock_of_all());
  run_until(event->point);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const Call call(__func__);
  *milliseconds = std::chrono::duration<float, std::milli>(end->point->when - start->point->when).count();
  return cudaSuccess;
}
