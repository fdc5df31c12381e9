// What core/device_work.h asks of a device: captured graphs, and chains of elementwise instructions.
#include "core/device_work.h"

#include <map>
#include <mutex>

#include "core/error.h"
#include "gpu/fused.h"
#include "gpu/matmul.h"
#include "gpu/memory.h"
#include "gpu/stream.h"

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

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(int device, FunctionRef<> work) : device_(device) {
    const DeviceScope device_scope(device);
    const Stream stream;
    Recording recording(stream.get());
    {
      const CurrentStream capture(device, stream.get());
      const PoolScope pool(this);
      work();
    }
    check(cudaStreamEndCapture(stream.get(), &recording.graph));
    check(cudaGraphInstantiate(&exec_, recording.graph, 0));
  }
  ~CudaGraph() override {
    if (exec_) cudaGraphExecDestroy(exec_);
    try {
      release_pool(device_, this);
    } catch (const Error&) {  // the device is lost
    }
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void replay() override {
    const DeviceScope scope(device_);
    check(cudaGraphLaunch(exec_, current_stream(device_)));
  }

 private:
  int device_;
  cudaGraphExec_t exec_ = nullptr;
};

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
  if (!stream) stream = std::make_unique<Stream>();
  return stream->get();
}

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
                                                           .fuse = fuse,
                                                           .milliseconds = milliseconds,
                                                           .allow_tf32 = allow_tf32}),
                      true);

}  // namespace
}  // namespace stepnet::gpu
