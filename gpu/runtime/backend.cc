// The backend of CUDA devices: captured graphs, streams, and chains of elementwise instructions.
#include "core/compute/backend.h"
#include "gpu/runtime/device.h"

#include <map>
#include <mutex>
#include <vector>

#include "gpu/runtime/chain_kernel.h"
#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "gpu/runtime/timesteps.h"
#include "stepnet/error.h"
#include "stepnet/operator.h"

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

// The memory that a graph works on, of which a part is taken even if its capture fails. It becomes the main stream's,
// which waits for the other streams that the graph has run on.
class GraphPool {
 public:
  explicit GraphPool(int device) : device_(device) {}
  ~GraphPool() {
    try {
      const DeviceScope scope(device_);
      for (const auto& [stream, end] : ends_) check(cudaStreamWaitEvent(main_stream(device_), end.get()));
      release_pool(device_, this);
    } catch (const Error&) {  // the device is lost
    }
  }
  void has_run(cudaStream_t stream) {
    if (stream != main_stream(device_)) ends_[stream].record(stream);
  }
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

 private:
  int device_;
  std::map<cudaStream_t, Event> ends_;  // of the latest run
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
    const cudaStream_t stream = current_stream(device_);
    check(cudaGraphLaunch(exec_.get(), stream));
    pool_.has_run(stream);
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

// Streams for branches, made when first needed and kept for the life of the process.
cudaStream_t side_stream_of(int device, int number) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<int, int>, std::unique_ptr<Stream>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Stream>& stream = all[{device, number}];
  const DeviceScope scope(device);
  if (!stream) stream = std::make_unique<Stream>();
  return stream->get();
}

class CudaBackend : public Backend {
 public:
  std::unique_ptr<DeviceGraph> capture(Device device, FunctionRef<> work) override {
    return std::make_unique<CudaGraph>(device.index, work);
  }

  void branches(Device device, int count, FunctionRef<int> work) override {
    const DeviceScope scope(device.index);
    const cudaStream_t here = gpu::current_stream(device.index);
    const auto wait_for_all = [&] {
      for (int i = 0; i < count; ++i) wait_for(device.index, here, side_stream_of(device.index, i));
    };
    for (int i = 0; i < count; ++i) wait_for(device.index, side_stream_of(device.index, i), here);
    try {
      for (int i = 0; i < count; ++i) {
        const CurrentStream current(device.index, side_stream_of(device.index, i));
        work(i);
      }
    } catch (...) {
      try {
        wait_for_all();
      } catch (const Error&) {  // the device is lost, or a capture has ended: the first error says so
      }
      throw;
    }
    wait_for_all();
  }

  TimestepsOutcome timesteps(Device device, int64_t count, FunctionRef<int64_t> step) override {
    return run_timesteps(device.index, count, step);
  }

  int current_stream(Device device) override { return stream_number(device.index, gpu::current_stream(device.index)); }
  void set_stream(Device device, int number) override {
    set_current_stream(device.index, stream_of_number(device.index, number));
  }
  void wait(Device of_waiting, int waiting, Device of_first, int first) override {
    wait_for(of_first.index, stream_of_number(of_waiting.index, waiting), stream_of_number(of_first.index, first));
  }
  void record_use(Device device, const void* data, int number) override {
    gpu::record_use(device.index, data, stream_of_number(device.index, number));
  }
  std::unique_ptr<DeviceEvent> event(Device device) override {
    const DeviceScope scope(device.index);
    return std::make_unique<CudaEvent>(device.index);
  }
  int side_stream(Device device, int i) override {
    return stream_number(device.index, side_stream_of(device.index, i));
  }
  bool keep_apart(bool on) override { return gpu::keep_apart(on); }

  std::shared_ptr<const FusedChain> fuse(Device device, DType dtype, const std::vector<FusedInstruction>& code,
                                         int tensors) override {
    return make_fused_chain(device.index, dtype, code, tensors);
  }

  double milliseconds(Device device, FunctionRef<> work) override {
    const DeviceScope scope(device.index);
    const cudaStream_t stream = gpu::current_stream(device.index);
    Event start(true), end(true);
    start.record(stream);
    work();
    end.record(stream);
    allocator(device).synchronize();  // which also raises what kernels have to complain of
    return static_cast<double>(end.milliseconds_since(start));
  }

  void allow_tf32(bool allow) override { gpu::allow_tf32(allow); }
  bool tf32_allowed() const override { return gpu::tf32_allowed(); }
};

REGISTER(cuda_backend) {
  return entry([] {
    static CudaBackend& all = *new CudaBackend;
    add_backend(DeviceKind::cuda, all);
  });
}

}  // namespace
}  // namespace stepnet::gpu
