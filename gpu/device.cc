#include "gpu/device.h"

#include "core/error.h"

namespace stepnet::gpu {

void check(cudaError_t result, std::source_location where) {
  if (result == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // so that the next call does not report this failure again
  Error error(fmt::format("CUDA: {} ({})", cudaGetErrorString(result), cudaGetErrorName(result)));
  throw error.add("in", fmt::format("{}:{}", where.file_name(), where.line()));
}

int device_count() {
  int count = 0;
  // No driver, a driver older than the runtime, and no device are all the same to a caller: there is no GPU.
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

void use_device(int index) {
  const int count = device_count();
  if (index < 0 || index >= count)
    throw Error(fmt::format("there is no device cuda:{}: this machine has {} usable CUDA device{}", index, count,
                            count == 1 ? "" : "s"),
                count == 0 ? "run on the CPU, or install a driver for the GPU" : "ask for a lower index");
  check(cudaSetDevice(index));
}

DeviceScope::DeviceScope(int index) {
  if (device_count() > 0) check(cudaGetDevice(&before_));
  use_device(index);
}

DeviceScope::~DeviceScope() { cudaSetDevice(before_); }

Event::Event(bool timing) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
  event_.reset(event);
}

void Event::record(cudaStream_t stream) { check(cudaEventRecord(get(), stream)); }
void Event::wait() const { check(cudaEventSynchronize(get())); }

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.get(), get()));
  return milliseconds;
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
}

void Stream::wait_for(const Event& event) { check(cudaStreamWaitEvent(get(), event.get())); }
void Stream::wait() const { check(cudaStreamSynchronize(get())); }

}  // namespace stepnet::gpu
