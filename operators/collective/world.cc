// Where worlds come from: the process itself, or MPI, which is loaded when it is needed first.
#include "operators/collective/world.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>

#include "core/compute/launcher.h"
#include "stepnet/error.h"
#include "stepnet/tensor.h"

namespace stepnet {
namespace {

class Done final : public Pending {
 public:
  explicit Done(int source = -1, int tag = -1) : source_(source), tag_(tag) {}
  bool done() const override { return true; }
  void wait() override { let_go(); }
  int source() const override { return source_; }
  int tag() const override { return tag_; }

 private:
  int source_, tag_;
};

// What a rank has sent to itself.
class Mailbox {
 public:
  void put(const void* data, size_t bytes, int tag) {
    const auto from = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    letters_.push_back({tag, std::vector<std::byte>(from, from + bytes)});
  }

  // Returns the tag of the first that fits.
  int take(void* data, size_t bytes, int tag) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(letters_, [&](const Letter& l) { return tag == World::kAny || tag == l.tag; });
    if (found == letters_.end())
      throw Error("nothing has been sent that could be received: this process was started alone",
                  "start two or more by mpirun -n 2");
    const Letter letter = std::move(*found);
    letters_.erase(found);
    require(letter.bytes.size() == bytes, "rank 0 of 1 has received {} bytes from itself with tag {}, and not {}",
            letter.bytes.size(), letter.tag, bytes);
    std::ranges::copy(letter.bytes, static_cast<std::byte*>(data));
    return letter.tag;
  }

 private:
  struct Letter {
    int tag;
    std::vector<std::byte> bytes;
  };
  std::mutex mutex_;
  std::deque<Letter> letters_;
};

// One rank's sum is its value, and nobody else is there to wait for. Of each device that tensors are on there is one.
class LocalWorld final : public World {
 public:
  explicit LocalWorld(int size, Device device = {}) : size_(size), device_(device) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  Seconds timeout() const override { return Seconds(0); }
  Machine machine() const override { return {size_, count_cores(own_cores())}; }

  PendingPtr start_allreduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp) override {
    return move(from, to, count, dtype);
  }
  PendingPtr start_reduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp, int) override {
    return move(from, to, count, dtype);
  }
  PendingPtr start_broadcast(void* data, int64_t count, DType dtype, int) override {
    return move(data, data, count, dtype);
  }
  PendingPtr start_allgather(const void* from, void* to, int64_t count, DType dtype) override {
    return move(from, to, count, dtype);
  }
  PendingPtr start_allgather_parts(const void* from, void* to, const std::vector<int64_t>& counts,
                                   DType dtype) override {
    require(counts.size() == 1, "there are {} counts for 1 rank", counts.size());
    return move(from, to, counts[0], dtype);
  }
  PendingPtr start_reduce_scatter(const void* from, void* to, int64_t count, DType dtype, ReduceOp) override {
    return move(from, to, count, dtype);
  }
  PendingPtr start_alltoall(const void* from, void* to, int64_t count, DType dtype) override {
    return move(from, to, count, dtype);
  }
  PendingPtr start_barrier() override { return move(nullptr, nullptr, 0, DType::uint8); }
  PendingPtr start_send(const void* data, int64_t count, DType dtype, int to, int tag) override {
    require(to == 0, "the destination is rank {}, but this process was started alone, as rank 0", to);
    mailbox_.put(data, static_cast<size_t>(count) * dtype_size(dtype), tag);
    return std::make_shared<Done>();
  }
  PendingPtr start_receive(void* data, int64_t count, DType dtype, int from, int tag) override {
    require(from == 0 || from == kAny, "the source is rank {}, but this process was started alone, as rank 0", from);
    return std::make_shared<Done>(0, mailbox_.take(data, static_cast<size_t>(count) * dtype_size(dtype), tag));
  }
  PendingPtr start_agreement(Collective, int64_t, DType, ReduceOp, int) override { return std::make_shared<Done>(); }
  World* on(Device device) override {
    if (device == device_) return this;
    const std::lock_guard lock(mutex_);
    std::unique_ptr<LocalWorld>& there = elsewhere_[{device.kind, device.index}];
    if (!there) there = std::make_unique<LocalWorld>(size_, device);
    return there.get();
  }
  std::shared_ptr<World> clone(Seconds) override { return std::make_shared<LocalWorld>(size_); }

 private:
  PendingPtr move(const void* from, void* to, int64_t count, DType dtype) const {
    require(size_ == 1, "a world of {} ranks that is only claimed cannot move data", size_);
    const size_t bytes = static_cast<size_t>(count) * dtype_size(dtype);
    if (from != to && count > 0) {
      if (device_.kind == DeviceKind::cpu)
        std::memmove(to, from, bytes);
      else
        allocator(device_).copy_within(to, from, bytes);
    }
    return std::make_shared<Done>();
  }
  int size_;
  Device device_;
  Mailbox mailbox_;
  std::mutex mutex_;
  std::map<std::pair<DeviceKind, int>, std::unique_ptr<LocalWorld>> elsewhere_;
};

// What launchers tell each process, and what MPI itself goes by: without one of these it would be one rank, too.
bool has_launcher() {
  const std::array names = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT"};
  for (const char* name : names)
    if (std::getenv(name)) return true;
  return false;
}

// To each of several processes, MPI that does not understand their launcher says that it is alone; all would do all of
// the work, and write to the same files.
WorldPtr checked(WorldPtr world) {
  const Launched launched = launched_together();
  if (world->size() == 1 && launched.processes > 1)
    throw Error(
        fmt::format("{} processes have been started together ({} says so), but MPI knows of this one only",
                    launched.processes, launched.variable),
        fmt::format("start them by the mpirun of the MPI that Stepnet was built with (mpirun.openmpi or mpirun.mpich "
                    "of Debian), or by a srun that supports it; or unset {}, for one that works by itself",
                    launched.variable));
  return world;
}

// MPI that the program itself has started, as a Python program may have, is there without a launcher, too.
bool has_mpi() {
  using IsInitialized = int (*)(int*);
  const auto is_initialized = reinterpret_cast<IsInitialized>(dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int yes = 0;
  return is_initialized && is_initialized(&yes) == 0 && yes;
}

// The library that MPI is behind lies beside this one.
WorldFactory load_mpi() {
  Dl_info here{};
  require(dladdr(reinterpret_cast<void*>(&load_mpi), &here) != 0, "the folder of libstepnet.so cannot be found");
  const std::string path = (std::filesystem::path(here.dli_fname).parent_path() / "libstepnet_mpi.so").string();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // Open MPI loads parts of itself that look for it
  if (!library)
    throw Error(fmt::format("MPI cannot be loaded: {}", dlerror()),
                "install the MPI that Stepnet was built with, Debian's package openmpi-bin or mpich");
  void* factory = dlsym(library, "stepnet_mpi_world");
  require(factory != nullptr, "{} is not of this version of Stepnet", path);
  return reinterpret_cast<WorldFactory>(factory);
}

constexpr double kDefaultSeconds = 300;

double seconds_of_environment() {
  const char* text = std::getenv("STEPNET_TIMEOUT_SEC");
  if (!text) return kDefaultSeconds;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  require(end != text && *end == '\0' && std::isfinite(seconds) && seconds > 0,
          "the environment's STEPNET_TIMEOUT_SEC must be a number of seconds greater than 0, but is \"{}\"", text);
  return seconds;
}

std::atomic<double> timeout_set = 0;  // 0: none
std::atomic<int> size_claimed = 1;

std::atomic<const GpuWorlds*>& gpu_worlds() {
  static std::atomic<const GpuWorlds*> worlds = nullptr;
  return worlds;
}

}  // namespace

WorldPtr create_world(Seconds timeout) {
  if (!has_launcher() && !has_mpi()) return checked(create_local_world(1));
  static const WorldFactory factory = load_mpi();
  WorldPtr world;
  factory(timeout, &world);
  return checked(std::move(world));
}

void offer_gpu_worlds(const GpuWorlds& worlds) { gpu_worlds() = &worlds; }

WorldPtr create_gpu_world(Device device, Seconds timeout) {
  const GpuWorlds* worlds = gpu_worlds();
  if (!worlds)
    throw Error("the engine is \"NCCL\", which this build does not have: it is without GPUs",
                "build where there is a CUDA toolkit, or use \"MPI\"");
  return worlds->make(create_world(timeout), device, timeout);
}

int count_gpus() {
  const GpuWorlds* worlds = gpu_worlds();
  return worlds ? worlds->count_gpus() : 0;
}

WorldPtr create_local_world(int size) { return std::make_shared<LocalWorld>(size); }

int claimed_world_size() { return size_claimed; }

void claim_world_size(int size) {
  require(size >= 1, "a world has at least 1 rank, but {} are asked for", size);
  size_claimed = size;
}

cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_SET(0, &cores);  // a machine with more than the set has
  return cores;
}

int count_cores(const cpu_set_t& cores) { return CPU_COUNT(&cores); }

Seconds default_world_timeout() {
  const double set = timeout_set;
  return Seconds(set > 0 ? set : seconds_of_environment());
}

void set_default_world_timeout(Seconds timeout) {
  require(timeout.count() > 0, "a time-out must be greater than 0 seconds, but is {}", timeout.count());
  timeout_set = timeout.count();
}

}  // namespace stepnet
