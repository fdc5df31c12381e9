#include "core/autograd/tape_state.h"

#include <array>
#include <atomic>

namespace stepnet::autograd {
namespace {

constexpr size_t kEvents = static_cast<size_t>(TapeEvent::value_unpacked) + 1;
std::array<std::atomic<int64_t>, kEvents> g_events{};

std::atomic<uint64_t> g_seed{1};
std::atomic<int64_t> g_draws{0};

void (*g_before_write)(const Tensor&) = nullptr;

}  // namespace

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

}  // namespace stepnet::autograd
