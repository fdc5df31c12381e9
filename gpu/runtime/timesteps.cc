#include "gpu/runtime/timesteps.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

struct Recorder {
  Timesteps timesteps = {};
  bool ended = false;       // something came that a plan knows nothing of
  std::string by = "work";  // the operator that it is of
};

thread_local Recorder* recorder_here = nullptr;

void queue_all(const Timesteps& timesteps) {
  for (const auto& step : timesteps)
    for (const QueuedWork& work : step) work.run();
}

// Somebody is about to use the stream.
void end_recording() {
  Recorder* const recorder = std::exchange(recorder_here, nullptr);
  when_stream_is_used(nullptr);
  recorder->ended = true;
  if (const BoundOp* op = running_op()) recorder->by = op->def.type();
  queue_all(recorder->timesteps);
}

class RecordingScope {
 public:
  explicit RecordingScope(Recorder& recorder) {
    recorder_here = &recorder;
    when_stream_is_used(end_recording);
  }
  ~RecordingScope() {
    recorder_here = nullptr;
    when_stream_is_used(nullptr);
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;
};

// Takes the last timesteps away, and returns them, as long as they queue other things than the first one: the last of a
// backward run has nobody's gradient to add.
Timesteps take_others(Timesteps& timesteps) {
  size_t alike = 1;
  while (alike < timesteps.size() && alike_steps(timesteps[alike], timesteps[0])) ++alike;
  const auto end = timesteps.begin() + static_cast<ptrdiff_t>(alike);
  Timesteps others(std::make_move_iterator(end), std::make_move_iterator(timesteps.end()));
  timesteps.erase(end, timesteps.end());
  return others;
}

// Queues one kernel for all of them, if there is one.
TimestepsOutcome run_as_one(int device, const Timesteps& timesteps) {
  const LoopLimits limits = loop_limits(device);
  const LoopPlan plan = plan_loop(timesteps, limits);
  if (!plan.refusal.empty()) return {.refusal = plan.refusal};
  std::shared_ptr<const CompiledLoop> kernel;
  try {
    kernel = compile_loop(device, plan);
  } catch (const Error& e) {
    return {.refusal = e.what()};
  }
  for (const QueuedWork& work : timesteps[0])
    if (work.check) work.check();
  const cudaStream_t stream = current_stream(device);
  void* const arrived = pool_workspace(device, stream, sizeof(uint32_t));
  check(cudaMemsetAsync(arrived, 0, sizeof(uint32_t), stream));
  kernel->launch(stream, plan, arrived);
  return {.kernel = to_text(plan, limits)};
}

}  // namespace

bool recording() { return recorder_here != nullptr; }
void record(QueuedWork work) { recorder_here->timesteps.back().push_back(std::move(work)); }

TimestepsOutcome run_timesteps(int device, int64_t count, FunctionRef<int64_t> step) {
  const DeviceScope device_scope(device);
  if (recording()) {  // a network in a timestep of another one
    for (int64_t i = 0; i < count; ++i) step(i);
    return {.refusal = "it is part of a timestep of another loop"};
  }
  Recorder recorder;
  {
    const RecordingScope scope(recorder);
    for (int64_t i = 0; i < count; ++i) {
      if (!recorder.ended) recorder.timesteps.emplace_back();
      step(i);
    }
  }
  if (recorder.ended)
    return {.refusal = fmt::format("{} is neither a product nor a chain of elementwise operators", recorder.by)};
  const Timesteps others = take_others(recorder.timesteps);
  TimestepsOutcome outcome = run_as_one(device, recorder.timesteps);
  if (outcome.kernel.empty()) queue_all(recorder.timesteps);
  queue_all(others);
  return outcome;
}

}  // namespace stepnet::gpu
