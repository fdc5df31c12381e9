// Timesteps as one kernel: a plan of it, made from what a loop queues for each of its timesteps.
//
// The kernel stays on the device for the whole loop. Columns of what a timestep computes are its units: a unit u of H
// has the columns u, u + H, u + 2 H, ... of every product and of every chain of elementwise instructions. Each block
// has some units, and keeps their columns of all weights in shared memory. So blocks need nothing of each other but the
// first operands of products, for which they wait for each other: as a rule once in a timestep.
//
// Source: Diamos et al., Persistent RNNs: stashing recurrent weights on-chip, 2016, for cells of any arithmetic.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

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

struct QueuedWork {
  std::variant<QueuedProduct, QueuedChain> what;
  std::function<void()> run;         // queues it by itself
  std::function<void()> check = {};  // queues once what a kernel of all timesteps leaves out: it looks for bad values
};
using Timesteps = std::vector<std::vector<QueuedWork>>;  // in the order of the run

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
  ProductSizes sizes;
  int a = 0, c = 0;            // places
  int weights = 0, bias = -1;  // constants; -1: none
  int groups = 1;              // columns of each unit
  bool c_is_late = false;      // as LoopOperand
  bool by_tensor_cores = false;
  int wide = 1;                        // elements of A that are read at a time
  size_t weights_at = 0, sums_at = 0;  // in shared memory
  bool loads_weights = true;           // not those that a product before it has loaded
  bool c_is_shared = false;            // as LoopOperand
};

struct LoopOperand {
  int place = 0;
  int64_t stride = 0, step = 1;
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
  std::variant<LoopProduct, LoopChain> what;
  bool waits = false;  // for all blocks, before it
};

struct LoopPlan {
  std::string refusal;  // why there is no such kernel; "" if there is one
  DType dtype = DType::undefined;
  int64_t steps = 0, rows = 0, units = 0;
  int64_t block_units = 0;  // of each block; the last one may have fewer
  int blocks = 0;
  size_t shared_bytes = 0;  // of a block
  std::vector<LoopPlace> places;
  std::vector<const void*> constants;
  std::vector<LoopOp> ops;
};

constexpr int kLoopThreads = 256;

// How the sums of a product lie in shared memory: those of each part of the warps, in rows of a length.
struct LoopSums {
  int64_t parts = 1, rows = 0, length = 0;
};
LoopSums sums_of(const LoopPlan& plan, const LoopProduct& product);

// Whether two timesteps queue the same things, but for addresses that move.
bool alike_steps(const std::vector<QueuedWork>& a, const std::vector<QueuedWork>& b);

// For all timesteps of a loop. Errors: none; what cannot be done is the plan's refusal.
LoopPlan plan_loop(const Timesteps& timesteps, const LoopLimits& limits);

// The kernel in words, for people.
std::string to_text(const LoopPlan& plan, const LoopLimits& limits);

// CUDA C++ of a kernel
//   extern "C" __global__ void timesteps(const Parameters p)
// with the parameters that loop_parameters gives.
std::string loop_source(const LoopPlan& plan);

// The kernel's one parameter, as 8-byte words. `arrived`: 4 bytes on the device, zeros when the kernel begins.
std::vector<uint64_t> loop_parameters(const LoopPlan& plan, void* arrived);

}  // namespace stepnet::gpu
