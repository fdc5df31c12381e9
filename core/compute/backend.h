// Backend: what executors need of a device beyond its memory and its kernels; a device's module (gpu/) registers it.
//
// Threads: as the parts say; backends are registered when the library is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/compute/threads.h"
#include "stepnet/device.h"
#include "stepnet/elementwise_chain.h"
#include "stepnet/shape.h"

namespace stepnet {

// Work that was queued once, with all its addresses, and is queued again as a whole by one call. Threads: one at a
// time.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;
};

// A point in a stream's work that other streams wait for, on the device; it may be moved on to a later one. Threads:
// one at a time.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record() = 0;  // it is what is queued so far on the calling thread's current stream
  virtual void wait() = 0;    // the calling thread's current stream goes on after it
};

// A chain of elementwise instructions (stepnet/elementwise_chain.h), ready to run on rows. Threads: may be used
// from several threads.
class FusedChain {
 public:
  virtual ~FusedChain() = default;
  // `tensors`: the operands that are tensors; rows of `width` elements.
  virtual void run(std::span<const FusedOperand<void>> tensors, int64_t width, int64_t rows) const = 0;
};

// What a device has made of timesteps: one kernel, in words, or none, and why. One of them is "".
struct TimestepsOutcome {
  std::string kernel = {}, refusal = {};
};

// What executors ask of the devices of one kind.
class Backend {
 public:
  virtual ~Backend() = default;
  // What `work` queues on the calling thread's current stream, which does not run meanwhile. Throws what `work` throws,
  // and Error if it waits for the device, or touches what lies outside of a stream.
  virtual std::unique_ptr<DeviceGraph> capture(Device device, FunctionRef<> work) = 0;
  // work(i) for every i < count, each on a stream of its own: what is queued runs at the same time, after what is
  // queued on the current stream so far, which then waits for all of it.
  virtual void branches(Device device, int count, FunctionRef<int> work) = 0;
  // step(i) for every i < count, in this order, each of which queues a timestep: the device may run all of them as one
  // kernel, with the same results but for roundings.
  virtual TimestepsOutcome timesteps(Device device, int64_t count, FunctionRef<int64_t> step) = 0;
  // Streams by number; 0 is the one that all threads start with. The calling thread's current one; another in its
  // place, without any waiting; `waiting` goes on only after what is queued on `first` so far; and work queued on the
  // stream so far reads the block that holds these bytes, which is not reused before.
  virtual int current_stream(Device device) = 0;
  virtual void set_stream(Device device, int number) = 0;
  virtual void wait(Device of_waiting, int waiting, Device of_first, int first) = 0;
  virtual void record_use(Device device, const void* data, int number) = 0;
  virtual std::unique_ptr<DeviceEvent> event(Device device) = 0;
  // The number of the i-th of the streams that branches run on, which all threads share.
  virtual int side_stream(Device device, int i) = 0;
  // Whether what the calling thread allocates comes from memory that the same stream has freed, or from new memory,
  // without waiting for other streams. Returns what was.
  virtual bool keep_apart(bool on) = 0;
  // `tensors` of the operands are tensors, the first ones; the others are values in between.
  virtual std::shared_ptr<const FusedChain> fuse(Device device, DType dtype, const std::vector<FusedInstruction>& code,
                                                 int tensors) = 0;
  // Milliseconds on the device from what the current stream has queued so far to the end of what `work` queues on it,
  // which is waited for.
  virtual double milliseconds(Device device, FunctionRef<> work) = 0;
  // Whether products of float32 may round their factors to TF32, whose mantissas have 10 bits, from now on.
  virtual void allow_tf32(bool allow) = 0;
  virtual bool tf32_allowed() const = 0;
};

void add_backend(DeviceKind kind, Backend& backend);  // which lives as long as the process
Backend& backend(DeviceKind kind);                    // throws Error if this build has none

// Bytes that cuBLASLt works on, for each stream that runs products; those who estimate memory count them, too.
constexpr int64_t kDeviceProductWorkspace = int64_t{32} << 20;

}  // namespace stepnet
