// Turns between nets and reports, and periodic reports.
#include "core/net/plan_threads.h"

#include <algorithm>

namespace stepnet {
namespace {

constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);  // longer intervals overflow the clock

}  // namespace

void NetGate::enter_net() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !reporting_ && (waiting_ == 0 || nets_ > 0); });
  ++nets_;
}

void NetGate::leave_net() {
  const std::lock_guard lock(mutex_);
  if (--nets_ == 0) changed_.notify_all();
}

bool NetGate::enter_report(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  const bool entered = changed_.wait_for(lock, patience, [this] { return !reporting_ && nets_ == 0; });
  --waiting_;
  if (entered) reporting_ = true;
  if (!entered) changed_.notify_all();
  return entered;
}

void NetGate::leave_report() {
  const std::lock_guard lock(mutex_);
  reporting_ = false;
  changed_.notify_all();
}

PeriodicThread::PeriodicThread(std::chrono::milliseconds interval, std::function<void()> report)
    : thread_([this, interval, report = std::move(report)] { loop(interval, report); }) {}

PeriodicThread::~PeriodicThread() { end(State::abandoned); }

void PeriodicThread::finish() { end(State::finishing); }

void PeriodicThread::end(State state) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::running) state_ = state;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PeriodicThread::loop(std::chrono::milliseconds interval, const std::function<void()>& report) {
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    changed_.wait_for(lock, std::min(interval, kLongest), [this] { return state_ != State::running; });
    if (state_ == State::abandoned) return;
    last = state_ == State::finishing;
    lock.unlock();
    report();
    lock.lock();
  }
}

}  // namespace stepnet
