// Worlds for tensors of a GPU, on NCCL.
//
// A world on NCCL stands on another one of the same ranks, which MPI makes: by that, ranks exchange NCCL's id, compare
// what they are about to do before anything is queued, and move tensors of the CPU. So ranks that disagree or do not
// come are the same errors as without GPUs, and NCCL, which would wait for them for ever, is only called when all have
// come. The host waits for that, not for the data.
//
// Data moves on a stream of the world, behind what the caller's current stream has queued; Pending::wait lets the
// stream that is current then go on behind the data, and the host goes on at once.
//
// Where ranks do not come, what is queued may wait for ever on the device. So after a failure NCCL is aborted, which
// ends that, in place of being waited for.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/collective/gpu_id.h"
#include "gpu/collective/nccl.h"
#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "operators/collective/world.h"
#include "stepnet/error.h"
#include "stepnet/operator.h"

namespace stepnet::gpu {
namespace {

NcclDataType nccl_type_of(DType dtype, bool is_added) {
  switch (dtype) {
    case DType::float32:
      return nccl_type::kFloat32;
    case DType::float64:
      return nccl_type::kFloat64;
    case DType::float16:
      return nccl_type::kFloat16;
    case DType::bfloat16:
      return nccl_type::kBfloat16;
    case DType::int64:
      return nccl_type::kInt64;
    case DType::int32:
      return nccl_type::kInt32;
    case DType::int8:
      return nccl_type::kInt8;
    case DType::uint8:
      return nccl_type::kUint8;
    default:
      if (is_added)
        throw Error(fmt::format("NCCL does not add up elements of type {}", dtype_name(dtype)),
                    "bring them to int32 with Cast");
      return nccl_type::kUint8;  // as bytes
  }
}

// Of what NCCL does not have, bytes are moved.
size_t nccl_count(DType dtype, int64_t count) {
  const bool by_bytes = dtype == DType::int16 || dtype == DType::uint16;
  return static_cast<size_t>(count) * (by_bytes ? dtype_size(dtype) : 1);
}

NcclReduction nccl_reduction_of(ReduceOp op) {
  return op == ReduceOp::sum ? nccl_reduction::kSum : op == ReduceOp::min ? nccl_reduction::kMin : nccl_reduction::kMax;
}

// The world's communicator, and what is moving by it. Threads: one at a time, but for has_failed().
class Communicator {
 public:
  explicit Communicator(NcclComm* comm) : comm_(comm) {}
  ~Communicator() {
    if (comm_) nccl().comm_destroy(comm_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  NcclComm* get() const {
    require(comm_ != nullptr, "the common world has failed before");
    return comm_;
  }
  void abort() {
    if (comm_) nccl().comm_abort(std::exchange(comm_, nullptr));
  }
  void set_failed() { failed_ = true; }
  bool has_failed() const { return failed_; }

 private:
  NcclComm* comm_;
  std::atomic<bool> failed_ = false;
};
using CommunicatorPtr = std::shared_ptr<Communicator>;  // of the world and of all that is moving

// Data that is moving. Whether it is over is known to the device; the host learns it where it reads values.
class Moving final : public Pending {
 public:
  Moving(CommunicatorPtr comm, int device, cudaStream_t stream) : comm_(std::move(comm)), device_(device) {
    event_.record(stream);
  }
  bool done() const override { return is_over_; }
  void wait() override {
    const DeviceScope scope(device_);
    NcclResult error = 0;
    check(nccl().comm_get_async_error(comm_->get(), &error), "ncclCommGetAsyncError");
    check(error, "a collective operation");
    check(cudaStreamWaitEvent(current_stream(device_), event_.get()));
    is_over_ = true;
    let_go();
  }

 private:
  CommunicatorPtr comm_;
  int device_;
  Event event_;
  bool is_over_ = false;
};

class NothingMoves final : public Pending {
 public:
  bool done() const override { return true; }
  void wait() override { let_go(); }
};

// NCCL itself says no more of two ranks with one GPU than that something was wrong.
void check_gpus(World& host, int device) {
  const GpuId own = gpu_id(device);
  std::vector<GpuId> all(static_cast<size_t>(host.size()));
  const auto kept = std::make_shared<std::pair<GpuId, std::vector<GpuId>>>(own, std::move(all));
  const PendingPtr told = host.start_allgather(kept->first.data(), kept->second.data(), sizeof(GpuId), DType::uint8);
  told->hold(kept);
  told->wait();
  const std::vector<GpuId>& ids = kept->second;
  for (size_t rank = 0; rank < ids.size(); ++rank)
    if (const auto first = std::ranges::find(ids, ids[rank]) - ids.begin(); static_cast<size_t>(first) < rank)
      throw Error(fmt::format("ranks {} and {} have the same GPU, but each needs one of its own", first, rank),
                  "start at most as many ranks on a machine as it has GPUs");
}

class NcclWorld final : public World {
 public:
  NcclWorld(WorldPtr host, Device device, Seconds timeout)
      : host_(std::move(host)), device_(device), timeout_(timeout) {
    const Nccl& library = nccl();
    const DeviceScope scope(device.index);
    check_gpus(*host_, device.index);
    const auto id = std::make_shared<NcclUniqueId>();
    if (host_->rank() == 0) check(library.get_unique_id(id.get()), "ncclGetUniqueId");
    const PendingPtr told = host_->start_broadcast(id->internal, sizeof(id->internal), DType::uint8, 0);
    told->hold(id);
    told->wait();
    NcclComm* comm = nullptr;
    check(library.comm_init_rank(&comm, host_->size(), *id, host_->rank()), "ncclCommInitRank");
    comm_ = std::make_shared<Communicator>(comm);
    stream_ = std::make_unique<Stream>();
  }
  ~NcclWorld() override {
    try {
      if (comm_->has_failed()) comm_->abort();
      stream_->wait();
    } catch (const Error&) {  // the device is lost, and whoever uses it next says so
    }
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  Seconds timeout() const override { return timeout_; }
  Machine machine() const override { return host_->machine(); }
  World* on(Device device) override {
    if (device.kind == DeviceKind::cpu) return host_.get();
    return device == device_ ? this : nullptr;
  }

  PendingPtr start_allreduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp op) override {
    const NcclDataType type = nccl_type_of(dtype, true);
    return start({Collective::allreduce, count, dtype, op}, from, to, [&](cudaStream_t stream) {
      check(nccl().all_reduce(from, to, static_cast<size_t>(count), type, nccl_reduction_of(op), comm_->get(), stream),
            "ncclAllReduce");
    });
  }
  PendingPtr start_reduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp op, int root) override {
    const NcclDataType type = nccl_type_of(dtype, true);
    return start({Collective::reduce, count, dtype, op, root}, from, to, [&](cudaStream_t stream) {
      check(
          nccl().reduce(from, to, static_cast<size_t>(count), type, nccl_reduction_of(op), root, comm_->get(), stream),
          "ncclReduce");
    });
  }
  PendingPtr start_broadcast(void* data, int64_t count, DType dtype, int root) override {
    return start({Collective::broadcast, count, dtype, ReduceOp::sum, root}, data, data, [&](cudaStream_t stream) {
      check(nccl().broadcast(data, data, nccl_count(dtype, count), nccl_type_of(dtype, false), root, comm_->get(),
                             stream),
            "ncclBroadcast");
    });
  }
  PendingPtr start_allgather(const void* from, void* to, int64_t count, DType dtype) override {
    return start({Collective::allgather, count, dtype}, from, to, [&](cudaStream_t stream) {
      check(nccl().all_gather(from, to, nccl_count(dtype, count), nccl_type_of(dtype, false), comm_->get(), stream),
            "ncclAllGather");
    });
  }
  PendingPtr start_reduce_scatter(const void* from, void* to, int64_t count, DType dtype, ReduceOp op) override {
    const NcclDataType type = nccl_type_of(dtype, true);
    return start({Collective::reduce_scatter, count, dtype, op}, from, to, [&](cudaStream_t stream) {
      check(nccl().reduce_scatter(from, to, static_cast<size_t>(count), type, nccl_reduction_of(op), comm_->get(),
                                  stream),
            "ncclReduceScatter");
    });
  }

  // Of the host.
  PendingPtr start_allgather_parts(const void*, void*, const std::vector<int64_t>&, DType) override {
    fail("tensors of GPUs are not gathered where ranks have different numbers of elements");  // see start_alltoall
  }
  PendingPtr start_alltoall(const void*, void*, int64_t, DType) override {
    fail("parts of tensors of GPUs are not exchanged between all ranks");  // operators that do so refuse these before
  }
  PendingPtr start_barrier() override { return host_->start_barrier(); }
  PendingPtr start_send(const void* data, int64_t count, DType dtype, int to, int tag) override {
    return host_->start_send(data, count, dtype, to, tag);
  }
  PendingPtr start_receive(void* data, int64_t count, DType dtype, int from, int tag) override {
    return host_->start_receive(data, count, dtype, from, tag);
  }
  PendingPtr start_agreement(Collective what, int64_t count, DType dtype, ReduceOp op, int root) override {
    return host_->start_agreement(what, count, dtype, op, root);
  }
  std::shared_ptr<World> clone(Seconds timeout) override {
    return std::make_shared<NcclWorld>(host_->clone(timeout), device_, timeout);
  }

 private:
  struct What {
    Collective kind;
    int64_t count;
    DType dtype;
    ReduceOp op = ReduceOp::sum;
    int root = -1;
  };

  // launch(stream) queues what moves the data.
  template <class Launch>
  PendingPtr start(const What& what, const void* from, void* to, Launch launch) {
    const std::lock_guard lock(mutex_);  // all ranks queue in the order in which they agree
    agree(what);
    if (what.count == 0) return std::make_shared<NothingMoves>();
    const DeviceScope scope(device_.index);
    return or_set_failed([&]() -> PendingPtr {  // the other ranks wait for what this one has agreed to
      wait_for(device_.index, stream_->get(), current_stream(device_.index));
      launch(stream_->get());
      record_use(device_.index, from, stream_->get());
      record_use(device_.index, to, stream_->get());
      return std::make_shared<Moving>(comm_, device_.index, stream_->get());
    });
  }

  void agree(const What& what) {
    or_set_failed([&] { host_->start_agreement(what.kind, what.count, what.dtype, what.op, what.root)->wait(); });
  }

  template <class Work>
  std::invoke_result_t<Work> or_set_failed(const Work& work) {
    try {
      return work();
    } catch (...) {
      comm_->set_failed();
      throw;
    }
  }

  WorldPtr host_;
  Device device_;
  Seconds timeout_;
  CommunicatorPtr comm_;
  std::unique_ptr<Stream> stream_;
  std::mutex mutex_;
};

WorldPtr make_world(const WorldPtr& host, Device device, Seconds timeout) {
  return std::make_shared<NcclWorld>(host, device, timeout);
}

constexpr GpuWorlds kWorlds{make_world, device_count};

REGISTER(nccl_worlds) {
  return entry([] { offer_gpu_worlds(kWorlds); });
}

}  // namespace
}  // namespace stepnet::gpu
