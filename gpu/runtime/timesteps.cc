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
thread_local std::string refusal_here;  // see last_refusal

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

// Whether all timesteps are one kernel now.
bool run_as_one(int device, const Timesteps& timesteps) {
  const LoopPlan plan = plan_loop(timesteps, loop_limits(device));
  refusal_here = plan.refusal;
  if (!plan.refusal.empty()) return false;
  std::shared_ptr<const CompiledLoop> kernel;
  try {
    kernel = compile_loop(device, plan);
  } catch (const Error& e) {
    refusal_here = e.what();
    return false;
  }
  const cudaStream_t stream = current_stream(device);
  void* const arrived = pool_workspace(device, stream, sizeof(uint32_t));
  check(cudaMemsetAsync(arrived, 0, sizeof(uint32_t), stream));
  kernel->launch(stream, plan, arrived);
  return true;
}

}  // namespace

bool recording() { return recorder_here != nullptr; }
void record(QueuedWork work) { recorder_here->timesteps.back().push_back(std::move(work)); }
const std::string& last_refusal() { return refusal_here; }

void run_timesteps(int device, int64_t count, FunctionRef<int64_t> step) {
  const DeviceScope device_scope(device);
  if (recording()) {  // a network in a timestep of another one
    for (int64_t i = 0; i < count; ++i) step(i);
    return;
  }
  Recorder recorder;
  {
    const RecordingScope scope(recorder);
    for (int64_t i = 0; i < count; ++i) {
      if (!recorder.ended) recorder.timesteps.emplace_back();
      step(i);
    }
  }
  if (recorder.ended) {
    refusal_here = fmt::format("{} is neither a product nor a chain of elementwise operators", recorder.by);
    return;
  }
  const Timesteps others = take_others(recorder.timesteps);
  if (!run_as_one(device, recorder.timesteps)) queue_all(recorder.timesteps);
  queue_all(others);
}

}  // namespace stepnet::gpu
