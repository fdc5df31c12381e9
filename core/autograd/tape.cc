#include "stepnet/tape.h"

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace stepnet::autograd {
namespace {

constexpr size_t kEvents = static_cast<size_t>(TapeEvent::value_unpacked) + 1;
std::array<std::atomic<int64_t>, kEvents> g_events{};

std::atomic<uint64_t> g_seed{1};
std::atomic<int64_t> g_draws{0};

void (*g_before_write)(const Tensor&) = nullptr;

// While something is being let go of: what is to follow. It is on the stack of whoever began, so that it outlives
// whatever a thread destroys at its end.
thread_local std::vector<std::shared_ptr<void>>* g_waiting = nullptr;

}  // namespace

void let_go(std::shared_ptr<void> object) {
  if (!object || object.use_count() > 1) return;
  if (g_waiting) {
    g_waiting->push_back(std::move(object));
    return;
  }
  std::vector<std::shared_ptr<void>> waiting;
  g_waiting = &waiting;
  object.reset();
  while (!waiting.empty()) {
    const std::shared_ptr<void> next = std::move(waiting.back());
    waiting.pop_back();
  }
  g_waiting = nullptr;
}

TapeState& tape_state() {
  thread_local TapeState state;
  return state;
}

AnomalyMode::AnomalyMode(bool check_nan) : before_(tape_state().anomaly), checked_(tape_state().anomaly_checks_nan) {
  tape_state().anomaly = true;
  tape_state().anomaly_checks_nan = check_nan;
}

AnomalyMode::~AnomalyMode() {
  tape_state().anomaly = before_;
  tape_state().anomaly_checks_nan = checked_;
}

RandomState random_state() {
  if (const RandomState* own = tape_state().draws) return *own;
  return {g_seed.load(), g_draws.load()};
}

void set_random_state(const RandomState& state) {
  if (RandomState* own = tape_state().draws) {
    *own = state;
    return;
  }
  g_seed = state.seed;
  g_draws = state.draws;
}

int64_t next_draw() {
  if (RandomState* own = tape_state().draws) return own->draws++;
  return g_draws.fetch_add(1, std::memory_order_relaxed);
}

bool set_before_write(void (*before_write)(const Tensor& value)) {
  g_before_write = before_write;
  return true;
}

void before_write(const Tensor& value) {
  if (g_before_write) g_before_write(value);
}

void count(TapeEvent event) { g_events[static_cast<size_t>(event)].fetch_add(1, std::memory_order_relaxed); }
int64_t counted(TapeEvent event) { return g_events[static_cast<size_t>(event)].load(std::memory_order_relaxed); }

struct ParameterMarks {
  std::mutex mutex;
  std::unordered_map<const Storage*, int> count;
};

namespace {

const std::shared_ptr<ParameterMarks>& marks() {
  static const auto marks = std::make_shared<ParameterMarks>();
  return marks;
}

}  // namespace

ParameterMark::ParameterMark(const Storage* storage) : storage_(storage) {
  if (!storage_) return;
  all_ = marks();
  const std::lock_guard lock(all_->mutex);
  ++all_->count[storage_];
}

ParameterMark::~ParameterMark() {
  if (!all_) return;
  const std::lock_guard lock(all_->mutex);
  if (const auto it = all_->count.find(storage_); --it->second == 0) all_->count.erase(it);
}

bool is_parameter(const Tensor& value) {
  const std::lock_guard lock(marks()->mutex);
  return marks()->count.contains(value.storage().get());
}

}  // namespace stepnet::autograd
