#include "gpu/runtime/timesteps.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "gpu/runtime/memory.h"
#include "gpu/runtime/stream.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"

namespace stepnet::gpu {
namespace {

struct Recorder {
  LoopRecording recording = {};
  bool ended = false;         // something came that a plan knows nothing of
  std::string by = {};        // the operator that it is of
  std::string_view why = {};  // where the operator knows more
};

// What a thread keeps.
struct Kept {
  Recorder* now = nullptr;  // what records
  std::vector<std::unique_ptr<Recorder>> free;
  int64_t planned = 0;  // loops
  std::vector<FusedCodes> codes;
};
Kept& here() {
  static thread_local Kept kept;
  return kept;
}

// A recorder of one's own: a loop whose recording has ended may have others in its timesteps.
class TakenRecorder {
 public:
  TakenRecorder() {
    std::vector<std::unique_ptr<Recorder>>& free = here().free;
    if (free.empty()) free.push_back(std::make_unique<Recorder>());
    taken_ = std::move(free.back());
    free.pop_back();
    taken_->recording.clear();
    taken_->ended = false;
    taken_->why = {};
  }
  ~TakenRecorder() { here().free.push_back(std::move(taken_)); }
  TakenRecorder(const TakenRecorder&) = delete;
  TakenRecorder& operator=(const TakenRecorder&) = delete;
  Recorder& operator*() const { return *taken_; }

 private:
  std::unique_ptr<Recorder> taken_;
};

void queue_all(Timesteps timesteps) {
  for (const std::span<const QueuedWork> step : timesteps)
    for (const QueuedWork& work : step) work.run(work);
}

// Somebody is about to use the stream.
void end_recording() {
  Recorder& recorder = *std::exchange(here().now, nullptr);
  when_stream_is_used(nullptr);
  recorder.ended = true;
  const BoundOp* op = running_op();
  recorder.by = op ? std::string_view(op->def.type()) : "work";
  queue_all(recorder.recording.timesteps());
}

class RecordingScope {
 public:
  explicit RecordingScope(Recorder& recorder) {
    here().now = &recorder;
    when_stream_is_used(end_recording);
  }
  ~RecordingScope() {
    here().now = nullptr;
    when_stream_is_used(nullptr);
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;
};

// How many timesteps from the first on queue the same things as it: the last of a backward run has nobody's gradient to
// add.
size_t alike_from_first(Timesteps timesteps) {
  size_t alike = 1;
  while (alike < timesteps.size() && alike_steps(timesteps[alike], timesteps[0])) ++alike;
  return std::min(alike, timesteps.size());
}

// --- Plans that are kept ---------------------------------------------------------------------------------------------

// Of loops that run again. Of a refused one only a number is compared: should two loops have the same, one of them runs
// one by one, which is right all the same.
struct KeptPlan {
  int device = 0;
  uint64_t number = 0;                // of what was recorded
  std::vector<QueuedWork> step = {};  // the second timestep, unless it is refused
  LoopPlan plan = {};
  std::shared_ptr<const CompiledLoop> kernel = {};
  TimestepsOutcome outcome = {};
  uint64_t last_use = 0;
};

constexpr size_t kMostPlans = 64;

uint64_t number_of(Timesteps timesteps) {
  uint64_t number = 0xCBF29CE484222325;
  const auto add = [&](auto word) {
    number = (number ^ static_cast<uint64_t>(word)) * 0x100000001B3;
    number ^= number >> 32;
  };
  const auto add_address = [&](const void* address) { add(reinterpret_cast<uintptr_t>(address)); };
  add(timesteps.size());
  for (const std::span<const QueuedWork> step : timesteps)
    for (const QueuedWork& work : step) {
      add(work.check ? 1 : 0);
      if (const auto* p = std::get_if<QueuedProduct>(&work.what)) {
        for (const void* address : {p->a, p->b, p->bias, static_cast<const void*>(p->c)}) add_address(address);
        for (const int64_t size : {p->sizes.m, p->sizes.n, p->sizes.k, p->sizes.batch}) add(size);
        add(p->tf32);
      } else if (const auto* r = std::get_if<QueuedRows>(&work.what)) {
        add(r->kind);
        add(r->dtype);
        for (const int64_t size : {r->rows, r->size}) add(size);
        for (const void* address : {r->scale, r->bias}) add_address(address);
        r->tensors.each([&](RowTensor t) { add_address(r->tensors[t]); });
      } else {
        const auto& chain = std::get<QueuedChain>(work.what);
        add(chain.dtype);
        add(chain.int32_operands);
        for (const int64_t size : {chain.width, chain.rows}) add(size);
        for (const FusedOperand<void>& o : chain.operands) add_address(o.first);
      }
    }
  return number;
}

// Makes the plan and its kernel.
KeptPlan make_plan(int device, uint64_t number, Timesteps timesteps) {
  ++here().planned;
  const LoopLimits limits = loop_limits(device);
  KeptPlan made{.device = device, .number = number, .plan = plan_loop(timesteps, limits)};
  if (!made.plan.refusal.empty()) {
    made.outcome.refusal = made.plan.refusal;
    return made;
  }
  try {
    made.kernel = compile_loop(device, made.plan);
    made.step.assign(timesteps[1].begin(), timesteps[1].end());
    made.outcome.kernel = to_text(made.plan, limits);
  } catch (const Error& e) {
    made.outcome.refusal = e.what();
  }
  return made;
}

const KeptPlan& plan_of(int device, Timesteps timesteps) {
  static thread_local std::vector<KeptPlan> kept;
  static thread_local uint64_t uses = 0;
  const uint64_t number = number_of(timesteps);
  const auto fits = [&](const KeptPlan& k) {
    return k.device == device && k.number == number && (!k.kernel || is_plan_of(k.plan, k.step, timesteps));
  };
  auto found = std::ranges::find_if(kept, fits);
  if (found == kept.end()) {
    KeptPlan made = make_plan(device, number, timesteps);
    if (kept.size() == kMostPlans) kept.erase(std::ranges::min_element(kept, {}, &KeptPlan::last_use));
    found = kept.insert(kept.end(), std::move(made));
  }
  found->last_use = ++uses;
  return *found;
}

// Queues one kernel for all of them, if there is one.
TimestepsOutcome run_as_one(int device, Timesteps timesteps) {
  const KeptPlan& kept = plan_of(device, timesteps);
  if (!kept.kernel) return kept.outcome;
  for (const QueuedWork& work : timesteps[0])
    if (work.check) work.check(work);
  const cudaStream_t stream = current_stream(device);
  const size_t bytes = static_cast<size_t>(groups_of(kept.plan).count) * kArrivedBytes;
  void* const arrived = pool_workspace(device, stream, bytes);
  check(cudaMemsetAsync(arrived, 0, bytes, stream));
  kept.kernel->launch(stream, kept.plan, arrived);
  return kept.outcome;
}

// The same instructions are kept once.
const FusedCodes& kept_code(std::span<const FusedInstruction> code) {
  constexpr size_t kMost = 64;
  std::vector<FusedCodes>& all = here().codes;
  const auto found = std::ranges::find_if(all, [&](const FusedCodes& c) { return same_code(*c, code); });
  if (found != all.end()) return *found;
  if (all.size() == kMost) all.clear();
  return all.emplace_back(std::make_shared<const std::vector<FusedInstruction>>(code.begin(), code.end()));
}

QueuedWork& record_chain(DType dtype, const FusedCodes& code, int tensors, std::span<const FusedOperand<void>> operands,
                         uint64_t int32_operands, int64_t width, int64_t rows, const QueueAlone& run) {
  QueuedWork& work = here().now->recording.add_chain();
  work.run = run;
  auto& chain = std::get<QueuedChain>(work.what);
  chain.dtype = dtype;
  chain.code = code;
  chain.tensors = tensors;
  chain.operands.assign(operands.begin(), operands.end());
  chain.width = width;
  chain.rows = rows;
  chain.int32_operands = int32_operands;
  return work;
}

}  // namespace

bool recording() { return here().now != nullptr; }

void record(const QueuedProduct& product, const QueueAlone& run) { here().now->recording.add(product).run = run; }

void record(const QueuedRows& rows, const QueueAlone& run) { here().now->recording.add_rows(rows).run = run; }

void end_recording(std::string_view why) {
  if (!recording()) return;
  here().now->why = why;
  end_recording();
}

void record(DType dtype, const FusedCodes& code, int tensors, std::span<const FusedOperand<void>> operands,
            int64_t width, int64_t rows, const QueueAlone& run) {
  record_chain(dtype, code, tensors, operands, 0, width, rows, run);
}

void record(DType dtype, std::span<const FusedInstruction> code, int tensors,
            std::span<const FusedOperand<void>> operands, uint64_t int32_operands, int64_t width, int64_t rows,
            const QueueAlone& run, const QueueAlone& check) {
  record_chain(dtype, kept_code(code), tensors, operands, int32_operands, width, rows, run).check = check;
}

int64_t planned_loops() { return here().planned; }

TimestepsOutcome run_timesteps(int device, int64_t count, FunctionRef<int64_t> step) {
  const DeviceScope device_scope(device);
  if (recording()) {  // a network in a timestep of another one
    for (int64_t i = 0; i < count; ++i) step(i);
    return {.refusal = "it is part of a timestep of another loop"};
  }
  const TakenRecorder taken;
  Recorder& recorder = *taken;
  {
    const RecordingScope scope(recorder);
    for (int64_t i = 0; i < count; ++i) {
      if (!recorder.ended) recorder.recording.begin_step();
      step(i);
    }
  }
  if (recorder.ended && !recorder.why.empty()) return {.refusal = fmt::format("{} {}", recorder.by, recorder.why)};
  if (recorder.ended)
    return {.refusal = fmt::format("{} is neither a product, nor elementwise, nor a known operator on whole rows",
                                   recorder.by)};
  const Timesteps all = recorder.recording.timesteps();
  const size_t alike = alike_from_first(all);
  TimestepsOutcome outcome = run_as_one(device, all.first(alike));
  if (outcome.kernel.empty()) queue_all(all.first(alike));
  queue_all(all.subspan(alike));
  return outcome;
}

}  // namespace stepnet::gpu
