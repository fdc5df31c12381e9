// Timesteps as one kernel: a plan of it, made from what a loop queues for each of its timesteps.
//
// The kernel stays on the device for the whole loop. Columns of what a timestep computes are its units: a unit u of H
// has the columns u, u + H, u + 2 H, ... of every product, chain of elementwise instructions and operator on rows. Each
// block has some units, and keeps their columns of all weights in shared memory. So blocks need nothing of each other
// but the first operands of products, and the rows of operators on rows, for which they wait for each other: as a rule
// once in a timestep.
//
// Products of several matrices are those of heads, with units, rows and weights of their own. Everything else is split
// among heads as well: what has a row for each sample and head, or units of all heads in the row of a sample. A block
// has some units of one head, or some whole heads; and it has all rows, or some of them. Blocks wait for those of their
// heads and of their rows alone where nothing that a timestep writes is read by others in the whole loop.
//
// Source: Diamos et al., Persistent RNNs: stashing recurrent weights on-chip, 2016, for cells of any arithmetic.
// Threads: pure functions; a recording is one thread's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "gpu/runtime/loop_rows.h"
#include "gpu/runtime/product_sizes.h"
#include "stepnet/device.h"
#include "stepnet/elementwise_chain.h"
#include "stepnet/tensor.h"

namespace stepnet::gpu {

using FusedCodes = std::shared_ptr<const std::vector<FusedInstruction>>;

// C = A op(B), as gpu/loops/matmul.h has it, of a timestep.
struct QueuedProduct {
  DType dtype = DType::undefined;
  bool tf32 = false;
  ProductSizes sizes = {};  // with strides
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void* c = nullptr;
};

// A chain of elementwise instructions of a timestep.
struct QueuedChain {
  DType dtype = DType::undefined;
  FusedCodes code = {};
  int tensors = 0;
  std::vector<FusedOperand<void>> operands = {};
  int64_t width = 0, rows = 0;
  uint64_t int32_operands = 0;  // bit k: operand k has int32, one for each row or for all, and is only read

  bool has_int32(size_t k) const { return (int32_operands >> k & 1) != 0; }
};

struct QueuedWork;

// What queues a work or a part of it: a small closure, held in place, as a loop records many of them in every run.
class QueueAlone {
 public:
  QueueAlone() = default;
  // run(work) or run(), with the work that it stands in.
  template <class Run>
  explicit QueueAlone(const Run& run) {
    static_assert(std::is_trivially_copyable_v<Run> && sizeof(Run) <= kRoom && alignof(Run) <= alignof(int64_t));
    std::memcpy(room_, &run, sizeof(Run));
    call_ = [](const void* closure, const QueuedWork& work) {
      const auto& made = *static_cast<const Run*>(closure);
      if constexpr (std::is_invocable_v<const Run&, const QueuedWork&>)
        made(work);
      else
        made();
    };
  }
  void operator()(const QueuedWork& work) const { call_(room_, work); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  static constexpr size_t kRoom = 192;
  alignas(int64_t) std::byte room_[kRoom] = {};
  void (*call_)(const void*, const QueuedWork&) = nullptr;
};

struct QueuedWork {
  std::variant<QueuedProduct, QueuedChain, QueuedRows> what = {};
  QueueAlone run = {};    // queues it by itself
  QueueAlone check = {};  // queues once what a kernel of all timesteps leaves out: it looks for bad values
};
using Timesteps = std::span<const std::span<const QueuedWork>>;  // in the order of the run

// What a loop queues. It keeps its memory when it begins anew, also that of chains' operands, so that loops that are
// recorded in turns allocate nothing.
class LoopRecording {
 public:
  void clear();
  void begin_step();
  // Of the present timestep.
  QueuedWork& add(const QueuedProduct& product);
  QueuedWork& add_rows(const QueuedRows& rows);
  QueuedWork& add_chain();  // to be filled: but for `run` and `check`, all may be of another one
  Timesteps timesteps();    // until something is added

 private:
  QueuedWork& next();
  template <class What>
  QueuedWork& add_in_place(const What& what);

  std::vector<QueuedWork> works_;
  size_t used_ = 0;
  std::vector<std::vector<FusedOperand<void>>> spare_;  // of chains in whose places there is other work now
  std::vector<size_t> begins_;                          // of timesteps, in the works
  std::vector<std::span<const QueuedWork>> steps_;
};

// What the device offers to one kernel.
struct LoopLimits {
  int blocks = 0;             // that run at the same time, one on each multiprocessor
  size_t shared_bytes = 0;    // of a block
  bool tensor_cores = false;  // that multiply halves
};

// Where a tensor lies in timestep 0, 1 and 2, and how many bytes further two timesteps later; what is handed on in two
// places by turns does not move.
struct LoopPlace {
  const std::byte *first = nullptr, *odd = nullptr, *even = nullptr;
  int64_t stride = 0;

  const std::byte* at(int64_t t) const {
    if (t == 0) return first;
    return t % 2 == 1 ? odd + (t - 1) / 2 * stride : even + (t - 2) / 2 * stride;
  }
  bool operator==(const LoopPlace&) const = default;
};

struct LoopProduct {
  ProductSizes sizes;          // of a head, and the distances from head to head
  int a = 0, c = 0;            // places
  int weights = 0, bias = -1;  // constants; -1: none
  int64_t bias_stride = 0;     // from head to head
  int groups = 1;              // columns of each unit
  int64_t group_stride = 0;    // columns from one to the next
  bool c_is_late = false;      // as LoopOperand
  bool by_tensor_cores = false;
  int wide = 1;                        // elements of A that are read at a time
  size_t weights_at = 0, sums_at = 0;  // in shared memory; of the block's first head
  bool loads_weights = true;           // not those that a product before it has loaded
  bool c_is_shared = false;            // as LoopOperand
};

struct LoopOperand {
  int place = 0;
  int64_t head_stride = 0, stride = 0, group_stride = 0, step = 1;  // from head to head, row to row, ... unit to unit
  bool is_late = false;    // it is read only after the blocks have waited: another thread may write it before that
  bool is_shared = false;  // another block may read what is written here
  bool is_int32 = false;   // as in QueuedChain
};
struct LoopChain {
  FusedCodes code;
  int tensors = 0;
  std::vector<LoopOperand> operands;
  int groups = 1;
};

struct LoopOp {
  std::variant<LoopProduct, LoopChain, LoopRows> what;
  bool waits = false;  // for the blocks of its group, before it
};

struct LoopPlan {
  std::string refusal;  // why there is no such kernel; "" if there is one
  DType dtype = DType::undefined;
  int64_t steps = 0, heads = 1;
  int64_t rows = 0, units = 0;                               // of a head
  int64_t block_heads = 0, block_rows = 0, block_units = 0;  // of each block; the last ones may have fewer
  bool heads_wait_apart = false, rows_wait_apart = false;    // whether blocks wait for those of theirs alone
  int blocks = 0;
  size_t shared_bytes = 0;  // of a block
  std::vector<LoopPlace> places;
  std::vector<const void*> constants;
  std::vector<LoopOp> ops;
};

constexpr int kLoopThreads = 256;

// How many blocks share the heads, the rows and the units. Of a block the last is counted fastest, then the second.
struct LoopSplit {
  int64_t heads = 1, rows = 1, units = 1;
};
LoopSplit split_of(const LoopPlan& plan);

// Blocks wait for those of their group.
struct LoopGroups {
  int64_t count = 1, size = 1;
};
LoopGroups groups_of(const LoopPlan& plan);
int64_t group_of(const LoopPlan& plan, int64_t block);

// What the weights of a product have in shared memory for each head.
int64_t head_elements(const LoopPlan& plan, const LoopProduct& p);

// How warps share a product by tensor cores, in tiles of 16 rows, 8 columns and 32 summands. A team of warps, each with
// its part of the summands, has tiles of some rows and columns of a head at a time, as many as there are registers for.
struct LoopTiles {
  int64_t parts = 1, teams = 1;    // warps of a team, and teams
  int64_t height = 1, across = 1;  // tiles at a time
  int64_t items = 1;               // how often there are these in a block
  int64_t rounds = 1, unroll = 1;  // of summands, and how many of them are written out
};
LoopTiles tiles_of(const LoopPlan& plan, const LoopProduct& p);

// How the sums of a product lie in shared memory: those of each part of the warps, in rows of a length, as many of them
// for each head.
struct LoopSums {
  int64_t parts = 1, rows = 0, length = 0;
};
LoopSums sums_of(const LoopPlan& plan, const LoopProduct& product);

// Whether two timesteps queue the same things, but for addresses that move.
bool alike_steps(std::span<const QueuedWork> a, std::span<const QueuedWork> b);
bool same_code(std::span<const FusedInstruction> a, std::span<const FusedInstruction> b);

// For all timesteps of a loop. Errors: none; what cannot be done is the plan's refusal.
LoopPlan plan_loop(Timesteps timesteps, const LoopLimits& limits);
// Whether these timesteps are the ones that the plan was made of, the second of which was `step`: works and addresses.
bool is_plan_of(const LoopPlan& plan, std::span<const QueuedWork> step, Timesteps timesteps);

// The kernel in words, for people.
std::string to_text(const LoopPlan& plan, const LoopLimits& limits);

// CUDA C++ of a kernel
//   extern "C" __global__ void timesteps(const Parameters p)
// with the parameters that loop_parameters gives.
std::string loop_source(const LoopPlan& plan);
// The part of it that is the same text for any device, behind the few functions that a device has of its own.
std::string loop_body(const LoopPlan& plan);

// The kernel's one parameter, as 8-byte words. `arrived`: a counter of kArrivedBytes for each group of blocks, zeros
// when the kernel begins.
constexpr size_t kArrivedBytes = 128;  // a line of the caches
struct LoopParameters {
  static constexpr size_t kMost = 500;
  std::array<uint64_t, kMost> words;  // the first `count`
  size_t count = 0;
};
LoopParameters loop_parameters(const LoopPlan& plan, void* arrived);

}  // namespace stepnet::gpu
