// What core/compute/backend.h asks of a device: captured graphs, and chains of elementwise instructions.
#include "core/compute/backend.h"
#include "gpu/runtime/device.h"

#include <map>
#include <mutex>
#include <vector>

#include "gpu/runtime/chain_kernel.h"
#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

// What is recorded, or nothing if that went wrong; ends the capture in any case.
struct Recording {
  cudaStream_t stream;
  cudaGraph_t graph = nullptr;

  explicit Recording(cudaStream_t s) : stream(s) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Recording() {
    if (!graph) cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

// A stream of the current device that nobody else records on meanwhile. They are kept for the life of the process: what
// remembers streams (cached memory, workspaces) does not grow with each capture.
class CaptureStream {
 public:
  explicit CaptureStream(int device) : device_(device) {
    Free& free = free_ones();
    const std::lock_guard lock(free.mutex);
    std::vector<std::unique_ptr<Stream>>& here = free.by_device[device];
    if (here.empty()) here.push_back(std::make_unique<Stream>());
    stream_ = std::move(here.back());
    here.pop_back();
  }
  ~CaptureStream() {
    Free& free = free_ones();
    const std::lock_guard lock(free.mutex);
    free.by_device[device_].push_back(std::move(stream_));
  }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;
  cudaStream_t get() const { return stream_->get(); }

 private:
  struct Free {
    std::mutex mutex;
    std::map<int, std::vector<std::unique_ptr<Stream>>> by_device;
  };
  static Free& free_ones() {
    static Free& all = *new Free;
    return all;
  }
  int device_;
  std::unique_ptr<Stream> stream_;
};

// The memory that a graph works on, of which a part is taken even if its capture fails.
class GraphPool {
 public:
  explicit GraphPool(int device) : device_(device) {}
  ~GraphPool() {
    try {
      release_pool(device_, this);
    } catch (const Error&) {  // the device is lost
    }
  }
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

 private:
  int device_;
};

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(int device, FunctionRef<> work) : device_(device), pool_(device) {
    const DeviceScope device_scope(device);
    const CaptureStream stream(device);
    Recording recording(stream.get());
    {
      const CurrentStream capture(device, stream.get());
      const PoolScope pool(&pool_);
      work();
    }
    check(cudaStreamEndCapture(stream.get(), &recording.graph));
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, recording.graph, 0));
    exec_.reset(exec);
  }

  void replay() override {
    const DeviceScope scope(device_);
    check(cudaGraphLaunch(exec_.get(), current_stream(device_)));
  }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t exec) const { cudaGraphExecDestroy(exec); }
  };
  int device_;
  GraphPool pool_;  // goes after what works on it
  std::unique_ptr<CUgraphExec_st, Destroy> exec_;
};

class CudaEvent : public DeviceEvent {
 public:
  explicit CudaEvent(int device) : device_(device) {}
  void record() override {
    const DeviceScope scope(device_);
    event_.record(current_stream(device_));
  }
  void wait() override {
    const DeviceScope scope(device_);
    check(cudaStreamWaitEvent(current_stream(device_), event_.get()));
  }

 private:
  int device_;
  Event event_;
};

std::unique_ptr<DeviceEvent> make_event(Device device) {
  const DeviceScope scope(device.index);
  return std::make_unique<CudaEvent>(device.index);
}

std::unique_ptr<DeviceGraph> capture(Device device, FunctionRef<> work) {
  return std::make_unique<CudaGraph>(device.index, work);
}

std::shared_ptr<const FusedChain> fuse(Device device, DType dtype, const std::vector<FusedInstruction>& code,
                                       int tensors) {
  return make_fused_chain(device.index, dtype, code, tensors);
}

// Streams for branches, made when first needed and kept for the life of the process.
cudaStream_t side_stream(int device, int number) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<int, int>, std::unique_ptr<Stream>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Stream>& stream = all[{device, number}];
  const DeviceScope scope(device);
  if (!stream) stream = std::make_unique<Stream>();
  return stream->get();
}

int side_number(Device device, int i) { return stream_number(device.index, side_stream(device.index, i)); }

void branches(Device device, int count, FunctionRef<int> work) {
  const DeviceScope scope(device.index);
  const cudaStream_t here = current_stream(device.index);
  for (int i = 0; i < count; ++i) wait_for(device.index, side_stream(device.index, i), here);
  for (int i = 0; i < count; ++i) {
    const CurrentStream current(device.index, side_stream(device.index, i));
    work(i);
  }
  for (int i = 0; i < count; ++i) wait_for(device.index, here, side_stream(device.index, i));
}

int current_number(Device device) { return stream_number(device.index, current_stream(device.index)); }

void set_number(Device device, int number) { set_current_stream(device.index, stream_of_number(device.index, number)); }

void wait_numbers(Device of_waiting, int waiting, Device of_first, int first) {
  wait_for(of_first.index, stream_of_number(of_waiting.index, waiting), stream_of_number(of_first.index, first));
}

void record_number(Device device, const void* data, int number) {
  gpu::record_use(device.index, data, stream_of_number(device.index, number));
}

double milliseconds(Device device, FunctionRef<> work) {
  const DeviceScope scope(device.index);
  const cudaStream_t stream = current_stream(device.index);
  Event start(true), end(true);
  start.record(stream);
  work();
  end.record(stream);
  allocator(device).synchronize();  // which also raises what kernels have to complain of
  return static_cast<double>(end.milliseconds_since(start));
}

const bool offered = (offer_device_work(DeviceKind::cuda, {.capture = capture,
                                                           .branches = branches,
                                                           .current_stream = current_number,
                                                           .set_stream = set_number,
                                                           .wait = wait_numbers,
                                                           .record_use = record_number,
                                                           .event = make_event,
                                                           .side_stream = side_number,
                                                           .keep_apart = keep_apart,
                                                           .fuse = fuse,
                                                           .milliseconds = milliseconds,
                                                           .allow_tf32 = allow_tf32}),
                      true);

}  // namespace
}  // namespace stepnet::gpu
