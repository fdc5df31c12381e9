#include "gpu/runtime/device.h"

#include <atomic>
#include <vector>

#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

using Forget = void (*)(int device, cudaStream_t stream);

std::vector<Forget>& who_forgets() {  // filled while the library is loaded
  static auto& all = *new std::vector<Forget>;
  return all;
}

std::atomic<bool> tf32{false};
constexpr int kStays = -1;  // in place of the device that was current before a scope of the same

}  // namespace

void allow_tf32(bool allow) { tf32 = allow; }
bool tf32_allowed() { return tf32; }

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

// Around each launch and allocation, so where the device is current already, to know that is all that is asked for.
DeviceScope::DeviceScope(int index) {
  static std::atomic<bool> has_devices{false};
  if (!has_devices) has_devices = device_count() > 0;
  if (has_devices) check(cudaGetDevice(&before_));
  if (has_devices && before_ == index) {
    before_ = kStays;
    return;
  }
  use_device(index);
}

DeviceScope::~DeviceScope() {
  if (before_ != kStays) cudaSetDevice(before_);
}

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

void when_stream_ends(void (*forget)(int device, cudaStream_t stream)) { who_forgets().push_back(forget); }

Stream::Stream() {
  cudaStream_t stream = nullptr;
  int device = 0;
  check(cudaGetDevice(&device));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_ = {stream, Destroy(device)};
}

// At the end of the process there may be no driver any more.
void Stream::Destroy::operator()(cudaStream_t stream) const {
  for (const Forget forget : who_forgets()) {
    try {
      forget(device, stream);
    } catch (const Error&) {
    }
  }
  cudaStreamDestroy(stream);
}

void Stream::wait_for(const Event& event) { check(cudaStreamWaitEvent(get(), event.get())); }
void Stream::wait() const { check(cudaStreamSynchronize(get())); }

}  // namespace stepnet::gpu
