#include "gpu/runtime/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

constexpr int kMostDevices = 128;  // indices are seven bits

thread_local std::array<cudaStream_t, kMostDevices> current{};
thread_local void (*notice_of_use)() = nullptr;

}  // namespace

cudaStream_t main_stream(int device) {
  // Never destroyed: tensors in static objects may be released after they would be.
  static std::mutex& mutex = *new std::mutex;
  static auto& made = *new std::array<std::atomic<cudaStream_t>, kMostDevices>;
  static auto& streams = *new std::vector<std::unique_ptr<Stream>>;
  require(device >= 0 && device < kMostDevices, "{} is no GPU's index", device);
  std::atomic<cudaStream_t>& stream = made[static_cast<size_t>(device)];
  if (cudaStream_t there = stream.load(std::memory_order_acquire))
    return there;  // every launch asks, so without a lock
  const std::lock_guard lock(mutex);
  if (!stream.load()) {
    const DeviceScope scope(device);
    stream = streams.emplace_back(std::make_unique<Stream>())->get();
  }
  return stream;
}

void when_stream_is_used(void (*notice)()) { notice_of_use = notice; }

cudaStream_t current_stream(int device) {
  if (notice_of_use) notice_of_use();
  require(device >= 0 && device < kMostDevices, "{} is no GPU's index", device);
  const cudaStream_t stream = current[static_cast<size_t>(device)];
  return stream ? stream : main_stream(device);
}

void wait_for(int device, cudaStream_t waiting, cudaStream_t first) {
  if (waiting == first) return;
  const DeviceScope scope(device);
  Event event;
  event.record(first);
  check(cudaStreamWaitEvent(waiting, event.get()));
}

namespace {

// Of one device, in the order in which they were first asked for.
struct Numbered {
  std::mutex mutex;
  std::array<std::vector<cudaStream_t>, kMostDevices> streams;
};
Numbered& numbered() {
  static Numbered& all = *new Numbered;
  return all;
}

void forget(int device, cudaStream_t stream) {
  Numbered& all = numbered();
  const std::lock_guard lock(all.mutex);
  std::vector<cudaStream_t>& streams = all.streams.at(static_cast<size_t>(device));
  if (!streams.empty()) std::replace(streams.begin() + 1, streams.end(), stream, streams[0]);
}
const bool forgets = (when_stream_ends(forget), true);

}  // namespace

int stream_number(int device, cudaStream_t stream) {
  const cudaStream_t main = main_stream(device);
  Numbered& all = numbered();
  const std::lock_guard lock(all.mutex);
  std::vector<cudaStream_t>& streams = all.streams.at(static_cast<size_t>(device));
  if (streams.empty()) streams.push_back(main);
  auto it = std::find(streams.begin(), streams.end(), stream);
  if (it == streams.end()) it = streams.insert(it, stream);
  return static_cast<int>(it - streams.begin());
}

cudaStream_t stream_of_number(int device, int number) {
  if (number == 0) return main_stream(device);
  Numbered& all = numbered();
  const std::lock_guard lock(all.mutex);
  return all.streams.at(static_cast<size_t>(device)).at(static_cast<size_t>(number));
}

void set_current_stream(int device, cudaStream_t stream) { current[static_cast<size_t>(device)] = stream; }

CurrentStream::CurrentStream(int device, cudaStream_t stream)
    : device_(device), before_(current[static_cast<size_t>(device)]) {
  set_current_stream(device, stream);
}
CurrentStream::~CurrentStream() { set_current_stream(device_, before_); }

StreamScope::StreamScope(int device, cudaStream_t stream)
    : device_(device), before_(current_stream(device)), stream_(stream) {
  wait_for(device, stream, before_);
  set_current_stream(device, stream);
}

StreamScope::~StreamScope() {
  set_current_stream(device_, before_);
  try {
    wait_for(device_, before_, stream_);
  } catch (const Error&) {  // the device is lost: the next call on it says so
  }
}

}  // namespace stepnet::gpu
