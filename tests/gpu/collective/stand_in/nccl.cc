// A stand-in for NCCL on the imitated device, whose memory is the host's: the functions that gpu/collective/nccl.h
// declares, between processes of one machine, over shared memory.
//
// What is called is queued on the stream and runs when somebody waits for it, as everything does on the imitated
// device; it then waits for the other processes. Each puts a piece of its data into its slot, all wait, each reads what
// it needs, and all wait again. Values are added up in the order of ranks. Threads: one at a time for a communicator.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/collective/nccl.h"
#include "stepnet/half.h"

namespace emulated {
void enqueue(cudaStream_t stream, std::function<void()> work);
}

namespace stepnet::gpu {

constexpr size_t kSlotBytes = size_t{1} << 18;

struct Shared {
  std::atomic<bool> ready;
  pthread_barrier_t barrier;
};
constexpr size_t kHead = 4096;
static_assert(sizeof(Shared) <= kHead);

struct NcclComm {
  int rank = 0, ranks = 1;
  std::byte* memory = nullptr;
  size_t bytes = 0;
  std::atomic<bool> aborted = false;

  Shared& shared() const { return *reinterpret_cast<Shared*>(memory); }
  std::byte* slot(int of_rank) const { return memory + kHead + static_cast<size_t>(of_rank) * kSlotBytes; }
  void meet() const { pthread_barrier_wait(&shared().barrier); }
};

}  // namespace stepnet::gpu

namespace {

using namespace stepnet;       // NOLINT(google-build-using-namespace): this is no header
using namespace stepnet::gpu;  // NOLINT(google-build-using-namespace)

constexpr NcclResult kSuccess = 0, kSystemError = 2, kInvalidArgument = 4;

template <class Fn>
NcclResult with_type_of(NcclDataType type, Fn fn) {
  if (type == nccl_type::kInt8) return fn(int8_t{});
  if (type == nccl_type::kUint8) return fn(uint8_t{});
  if (type == nccl_type::kInt32) return fn(int32_t{});
  if (type == nccl_type::kInt64) return fn(int64_t{});
  if (type == nccl_type::kFloat16) return fn(float16{});
  if (type == nccl_type::kBfloat16) return fn(bfloat16{});
  if (type == nccl_type::kFloat32) return fn(float{});
  if (type == nccl_type::kFloat64) return fn(double{});
  return kInvalidArgument;
}

template <class T>
void fold(T& to, const T& x, NcclReduction op) {
  if (op == nccl_reduction::kSum)
    to = static_cast<T>(to + x);
  else
    to = op == nccl_reduction::kMin ? std::min(to, x) : std::max(to, x);
}

// Calls take(offset, bytes) for each piece of `bytes` in all, when it is in all slots.
template <class Take>
void exchange(const NcclComm& comm, const std::byte* from, size_t bytes, Take take) {
  if (comm.aborted) return;
  for (size_t at = 0; at < bytes; at += kSlotBytes) {
    const size_t some = std::min(kSlotBytes, bytes - at);
    std::memcpy(comm.slot(comm.rank), from + at, some);
    comm.meet();
    take(at, some);
    comm.meet();
  }
}

// The reduction of all ranks' elements.
template <class T>
std::vector<T> reduced(const NcclComm& comm, const void* from, size_t count, NcclReduction op) {
  std::vector<T> result(count);
  exchange(comm, static_cast<const std::byte*>(from), count * sizeof(T), [&](size_t at, size_t bytes) {
    T* to = result.data() + at / sizeof(T);
    std::memcpy(to, comm.slot(0), bytes);
    for (int r = 1; r < comm.ranks; ++r) {
      const T* x = reinterpret_cast<const T*>(comm.slot(r));
      for (size_t i = 0; i < bytes / sizeof(T); ++i) fold(to[i], x[i], op);
    }
  });
  return result;
}

// Queues a reduction, of which this rank gets `count` elements from `first` on at `to`, unless that is null.
NcclResult queue_reduction(const void* from, void* to, size_t all, size_t first, size_t count, NcclDataType type,
                           NcclReduction op, NcclComm* comm, cudaStream_t stream) {
  return with_type_of(type, [&](auto zero) {
    using T = decltype(zero);
    emulated::enqueue(stream, [=] {
      const std::vector<T> sums = reduced<T>(*comm, from, all, op);
      if (to) std::memcpy(to, sums.data() + first, count * sizeof(T));
    });
    return kSuccess;
  });
}

// Opens the shared memory, which the first rank makes.
int open_shared(const NcclComm& comm, const char* name) {
  if (comm.rank == 0) {
    const int file = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(comm.bytes)) != 0) return -1;
    return file;
  }
  for (int tries = 0; tries < 60'000; ++tries) {
    const int file = shm_open(name, O_RDWR, 0600);
    struct stat found {};
    if (file >= 0 && fstat(file, &found) == 0 && static_cast<size_t>(found.st_size) == comm.bytes) return file;
    if (file >= 0) close(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return -1;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(NcclResult result) {
  return result == kSystemError ? "unhandled system error" : result == kInvalidArgument ? "invalid argument" : "error";
}
NcclResult ncclGetVersion(int* version) {
  *version = 22000;
  return kSuccess;
}
NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  static std::atomic<int> number = 0;
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "/stepnet_nccl_%d_%d", static_cast<int>(getpid()), number++);
  return kSuccess;
}
NcclResult ncclCommInitRank(NcclComm** made, int ranks, NcclUniqueId id, int rank) {
  auto comm = std::make_unique<NcclComm>();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->bytes = kHead + static_cast<size_t>(ranks) * kSlotBytes;
  const int file = open_shared(*comm, id.internal);
  if (file < 0) return kSystemError;
  void* memory = mmap(nullptr, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return kSystemError;
  comm->memory = static_cast<std::byte*>(memory);
  if (rank == 0) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&comm->shared().barrier, &attributes, static_cast<unsigned>(ranks));
    comm->shared().ready = true;
  }
  while (!comm->shared().ready) std::this_thread::yield();
  comm->meet();
  if (rank == 0) shm_unlink(id.internal);
  *made = comm.release();
  return kSuccess;
}
NcclResult ncclCommDestroy(NcclComm* comm) {
  munmap(comm->memory, comm->bytes);
  delete comm;
  return kSuccess;
}
// What is queued still looks at it, so it stays.
NcclResult ncclCommAbort(NcclComm* comm) {
  comm->aborted = true;
  return kSuccess;
}
NcclResult ncclCommGetAsyncError(NcclComm*, NcclResult* error) {
  *error = kSuccess;
  return kSuccess;
}

NcclResult ncclAllReduce(const void* from, void* to, size_t count, NcclDataType type, NcclReduction op, NcclComm* comm,
                         cudaStream_t stream) {
  return queue_reduction(from, to, count, 0, count, type, op, comm, stream);
}
NcclResult ncclReduce(const void* from, void* to, size_t count, NcclDataType type, NcclReduction op, int root,
                      NcclComm* comm, cudaStream_t stream) {
  return queue_reduction(from, comm->rank == root ? to : nullptr, count, 0, count, type, op, comm, stream);
}
NcclResult ncclReduceScatter(const void* from, void* to, size_t count, NcclDataType type, NcclReduction op,
                             NcclComm* comm, cudaStream_t stream) {
  return queue_reduction(from, to, count * static_cast<size_t>(comm->ranks), count * static_cast<size_t>(comm->rank),
                         count, type, op, comm, stream);
}
NcclResult ncclBroadcast(const void* from, void* to, size_t count, NcclDataType type, int root, NcclComm* comm,
                         cudaStream_t stream) {
  return with_type_of(type, [&](auto zero) {
    emulated::enqueue(stream, [=] {
      exchange(*comm, static_cast<const std::byte*>(from), count * sizeof(zero), [&](size_t at, size_t bytes) {
        std::memcpy(static_cast<std::byte*>(to) + at, comm->slot(root), bytes);
      });
    });
    return kSuccess;
  });
}
NcclResult ncclAllGather(const void* from, void* to, size_t count, NcclDataType type, NcclComm* comm,
                         cudaStream_t stream) {
  return with_type_of(type, [&](auto zero) {
    emulated::enqueue(stream, [=] {
      const size_t all = count * sizeof(zero);
      exchange(*comm, static_cast<const std::byte*>(from), all, [&](size_t at, size_t bytes) {
        for (int r = 0; r < comm->ranks; ++r)
          std::memcpy(static_cast<std::byte*>(to) + static_cast<size_t>(r) * all + at, comm->slot(r), bytes);
      });
    });
    return kSuccess;
  });
}

}  // extern "C"
