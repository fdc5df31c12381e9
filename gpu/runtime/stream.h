// The calling thread's current stream of each device: kernels, copies within the device and allocations are queued on
// it. At first that is the device's main stream, the same for all threads, so that work in program order needs no
// events; a StreamScope puts another one in its place.
//
// Threads: the current stream is per thread; streams may be used from several threads.
#pragma once

#include "gpu/runtime/device.h"

namespace stepnet::gpu {

cudaStream_t main_stream(int device);  // throws Error if the machine has no such device
cudaStream_t current_stream(int device);
void set_current_stream(int device, cudaStream_t stream);  // for the calling thread, without any waiting

// Called when the calling thread next asks for a current stream, which it is about to use; null: nobody.
void when_stream_is_used(void (*notice)());

// The stream is the calling thread's current one of that device while the scope is alive. What was queued before on
// the stream in force until then is waited for, on the device; at the end that stream waits for this one.
class StreamScope {
 public:
  StreamScope(int device, cudaStream_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  int device_;
  cudaStream_t before_, stream_;
};

// The same without any waiting.
class CurrentStream {
 public:
  CurrentStream(int device, cudaStream_t stream);
  ~CurrentStream();
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  int device_;
  cudaStream_t before_;
};

// Streams by number, for those who know no CUDA: 0 is the main one, which also stands in for one that is gone.
int stream_number(int device, cudaStream_t stream);
cudaStream_t stream_of_number(int device, int number);

// `waiting` does what is queued on it from now on after what is queued on `first` so far; the host does not wait.
// They may be of different devices; `device` is that of `first`.
void wait_for(int device, cudaStream_t waiting, cudaStream_t first);

}  // namespace stepnet::gpu
