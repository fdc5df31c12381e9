// World: the processes that run a net together, its *ranks*, and what they can do with each other. It is what a common
// world of the public format is, and the one place behind which there is an engine, such as MPI.
//
// Operations are asynchronous: start_... returns at once, and Pending says when it is over. So gradients can be reduced
// while others are still computed. All ranks must start the same collective operations of a world in the same order;
// before the data moves they compare what they are about to do (operation, type, elements, root), and if it is not
// the same, all of them get an Error that says who does what. Those of different worlds do not wait for each other.
// Sums of the same values by the same number of ranks have the same bits in each run and on each rank.
//
// Owns: no data. What an operation reads and writes must stay valid, and what it writes must be left alone, until it
// has been waited for; memory that may go earlier, because a wait fails, is given to Pending::hold.
// Threads: a world may be used from several threads, if these agree on the order of collective operations.
// Errors: wait() throws Error if ranks do different things, if the engine fails, and if the others do not come in time:
// nothing waits for ever. After the last two a world is broken, and whatever is started in it fails.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/device.h"
#include "stepnet/shape.h"

namespace stepnet {

enum class ReduceOp : int8_t { sum, min, max };
enum class Collective : int8_t { allreduce, reduce, broadcast, allgather, reduce_scatter };

using Seconds = std::chrono::duration<double>;

// What the ranks of one machine share.
struct Machine {
  int ranks = 1;
  int cores = 1;  // that any of them may use
  int place = 0;  // of this rank among them
};

// An operation that has been started.
class Pending {
 public:
  virtual ~Pending() = default;

  virtual bool done() const = 0;
  // Returns when the operation is over; throws Error if it failed, or if it is not over in the world's time.
  virtual void wait() = 0;
  // Of a receive that is over: the rank and the tag that the data came with.
  virtual int source() const { return -1; }
  virtual int tag() const { return -1; }

  // Keeps something, such as a tensor's storage, until wait() has returned; after a failure for as long as the engine
  // might still touch it.
  void hold(std::shared_ptr<void> what) { held_.push_back(std::move(what)); }

 protected:
  // The engine's own reference to the operation may go a moment later, and whoever plans memory looks at who holds it.
  void let_go() { held_.clear(); }

 private:
  std::vector<std::shared_ptr<void>> held_;
};
using PendingPtr = std::shared_ptr<Pending>;

class World {
 public:
  static constexpr int kAny = -1;  // of a receive: from any rank, with any tag

  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Seconds timeout() const = 0;  // of each wait
  virtual Machine machine() const = 0;  // that this rank runs on

  // `to` gets the reduction of all ranks' `count` elements; it may be `from`.
  virtual PendingPtr start_allreduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp op) = 0;
  // The same for `root` alone; the others' `to` is not touched and may be null.
  virtual PendingPtr start_reduce(const void* from, void* to, int64_t count, DType dtype, ReduceOp op, int root) = 0;
  virtual PendingPtr start_broadcast(void* data, int64_t count, DType dtype, int root) = 0;
  // `to` gets `count` elements of each rank, in the order of ranks.
  virtual PendingPtr start_allgather(const void* from, void* to, int64_t count, DType dtype) = 0;
  // The same with as many elements of each rank as `counts` says, which is the same on all ranks.
  virtual PendingPtr start_allgather_parts(const void* from, void* to, const std::vector<int64_t>& counts,
                                           DType dtype) = 0;
  // Of the reduction of all ranks' size() * `count` elements, rank r gets those from r * `count` on.
  virtual PendingPtr start_reduce_scatter(const void* from, void* to, int64_t count, DType dtype, ReduceOp op) = 0;
  // Each rank gives each one `count` of its size() * `count` elements, in the order of ranks, and gets as many.
  virtual PendingPtr start_alltoall(const void* from, void* to, int64_t count, DType dtype) = 0;
  virtual PendingPtr start_barrier() = 0;
  // From one rank to another. Of one sender and tag, data is received in the order in which it was sent; what arrives
  // must have as many elements as are received.
  virtual PendingPtr start_send(const void* data, int64_t count, DType dtype, int to, int tag) = 0;
  virtual PendingPtr start_receive(void* data, int64_t count, DType dtype, int from, int tag) = 0;

  // Compares what ranks are about to do on devices, by another engine; nothing is moved.
  virtual PendingPtr start_agreement(Collective what, int64_t count, DType dtype, ReduceOp op, int root) = 0;
  // What moves tensors of that device between the same ranks: this world or a part of it; null if there is nothing.
  virtual World* on(Device device) { return device.kind == DeviceKind::cpu ? this : nullptr; }

  // Makes another world of the same ranks; all of them must do so. It waits.
  virtual std::shared_ptr<World> clone(Seconds timeout) = 0;
};
using WorldPtr = std::shared_ptr<World>;

// Makes a world of all processes that were started together. All of them must do so. A process that no launcher, such
// as mpirun, has started is a world by itself, for which MPI is not touched. Throws Error if MPI cannot be loaded.
WorldPtr create_world(Seconds timeout);

// Makes a world of the same processes that moves tensors of that GPU, too, by NCCL. It is loaded then; throws Error if
// it cannot be, or if this build is without gpu/.
WorldPtr create_gpu_world(Device device, Seconds timeout);

// How many GPUs this process can use; 0 in a build without gpu/.
int count_gpus();

// Returns a world of this process alone that claims to be rank 0 of `size`: for `size` 1 everything works; of others
// only the number counts, for runs without data.
WorldPtr create_local_world(int size);

// How many ranks a common world has that is made in a run without data and does not say it: 1, unless set.
int claimed_world_size();
void claim_world_size(int size);

// How long worlds wait that are told nothing else: the environment's STEPNET_TIMEOUT_SEC, or 300 seconds, unless set.
Seconds default_world_timeout();
void set_default_world_timeout(Seconds timeout);

// The cores that this process may use, and those that a set of CPUs has.
cpu_set_t own_cores();
int count_cores(const cpu_set_t& cores);

// What an engine's library offers by the name `stepnet_mpi_world`; see create_world.
using WorldFactory = void (*)(Seconds timeout, WorldPtr* made);
// What gpu/ offers when it is loaded.
struct GpuWorlds {
  // A world of the ranks of `host`, which takes the CPU's tensors.
  WorldPtr (*make)(const WorldPtr& host, Device device, Seconds timeout);
  int (*count_gpus)();
};
void offer_gpu_worlds(const GpuWorlds& worlds);  // which live as long as the process

}  // namespace stepnet
