// The timesteps of a loop, run as one kernel where loop_plan.h has one for them, whether they are captured or not: so
// results have the same bits in every run.
//
// Products, chains and operators on rows ask whether their work is recorded instead of being queued. Whatever else
// comes to the stream, of which a plan knows nothing, ends the recording: then all is queued in its order as if nobody
// had asked.
//
// Where a loop is not captured, all this is done in every run. So a thread keeps its latest plans and the memory of its
// recording: timesteps that are the ones of a run before, with the same addresses, are launched without being planned
// anew, and nothing is allocated.
// Threads: a recording and its plans are the calling thread's.
#pragma once

#include <string_view>

#include "core/compute/backend.h"
#include "core/compute/threads.h"
#include "gpu/runtime/device.h"
#include "gpu/runtime/loop_plan.h"

namespace stepnet::gpu {

// step(i) queues timestep i, for every i < count in this order, on the current stream.
TimestepsOutcome run_timesteps(int device, int64_t count, FunctionRef<int64_t> step);

// Whether the calling thread records; work is then to be handed to record, and not queued. The rest is as in QueuedWork
// and QueuedChain.
bool recording();
void record(const QueuedProduct& product, const QueueAlone& run);
void record(const QueuedRows& rows, const QueueAlone& run);
void record(DType dtype, std::span<const FusedInstruction> code, int tensors,
            std::span<const FusedOperand<void>> operands, uint64_t int32_operands, int64_t width, int64_t rows,
            const QueueAlone& run, const QueueAlone& check);
// Of a chain whose instructions somebody keeps.
void record(DType dtype, const FusedCodes& code, int tensors, std::span<const FusedOperand<void>> operands,
            int64_t width, int64_t rows, const QueueAlone& run);

// Of an operator that a plan knows, but that does something else here, too: ends what is recorded, if anything is.
// `why` follows the operator's name, and is a literal.
void end_recording(std::string_view why);

// How many loops the calling thread has planned so far.
int64_t planned_loops();

// A kernel of a plan, for the life of the process.
class CompiledLoop {
 public:
  virtual ~CompiledLoop() = default;
  // `arrived`: as in loop_parameters.
  virtual void launch(cudaStream_t stream, const LoopPlan& plan, void* arrived) const = 0;
};

// What the device can do, and the plan's kernel, compiled at run time: gpu/vendor/nvrtc.cc. Throws Error with the
// compiler's words, or if there is no compiler.
LoopLimits loop_limits(int device);
std::shared_ptr<const CompiledLoop> compile_loop(int device, const LoopPlan& plan);

}  // namespace stepnet::gpu
