// CUDA devices, streams and events, as values that free themselves.
//
// Errors: a CUDA call that fails throws Error with CUDA's words and the place of the call.
// Threads: CUDA's current device is per thread; use_device sets it for the caller's thread only. Streams and events may
// be used from several threads.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <source_location>

#include "stepnet/device.h"

namespace stepnet::gpu {

// Throws Error unless the call went well.
void check(cudaError_t result, std::source_location where = std::source_location::current());

// The number of GPUs that this process can use; 0 where there is no driver.
int device_count();

// Makes a device the caller's current one; throws Error if the machine does not have it.
void use_device(int index);

// Lets products of float32 round their factors to TF32; off at first. For the whole process.
void allow_tf32(bool allow);
bool tf32_allowed();

// The device was current before; it is again at the end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int index);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

// A point in a stream's work that other streams and the host can wait for.
class Event {
 public:
  explicit Event(bool timing = false);  // on the current device
  void record(cudaStream_t stream);
  void wait() const;                                   // blocks the host
  float milliseconds_since(const Event& start) const;  // both made with timing, both reached
  cudaEvent_t get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

// Called with each stream before it is destroyed: whoever remembers streams forgets it, as another one may get its
// handle. What is queued on it may still run.
void when_stream_ends(void (*forget)(int device, cudaStream_t stream));

// A queue of work on the device that was current when it was made. It is ordered with other streams by events alone.
class Stream {
 public:
  Stream();
  void wait_for(const Event& event);  // later work waits; the host does not
  void wait() const;                  // blocks the host until all work so far is done
  cudaStream_t get() const { return stream_.get(); }

 private:
  struct Destroy {
    Destroy() : device(0) {}
    explicit Destroy(int of_device) : device(of_device) {}
    int device;
    void operator()(cudaStream_t stream) const;
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

}  // namespace stepnet::gpu
