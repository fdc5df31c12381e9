// The threads of a plan: turns between nets and reports, and periodic reports.
//
// Threads: both classes are made for several threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace stepnet {

// Reports run alone, nets beside each other, so a report never reads a blob that a net is writing. A waiting report
// goes first as soon as no net runs; while others run, a net may start, since those might be waiting for what it
// writes.
class NetGate {
 public:
  void enter_net();
  void leave_net();
  bool enter_report(std::chrono::milliseconds patience);  // false: nets ran all the time
  void leave_report();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int nets_ = 0, waiting_ = 0;
  bool reporting_ = false;
};

class NetTurn {
 public:
  explicit NetTurn(NetGate* gate) : gate_(gate) {
    if (gate_) gate_->enter_net();
  }
  ~NetTurn() {
    if (gate_) gate_->leave_net();
  }
  NetTurn(const NetTurn&) = delete;
  NetTurn& operator=(const NetTurn&) = delete;

 private:
  NetGate* gate_;
};

// Calls `report` every `interval` in a thread of its own, and once more when `finish` is called. Destroying it without
// `finish` (after a failure) leaves the last call out. `report` must not throw.
class PeriodicThread {
 public:
  PeriodicThread(std::chrono::milliseconds interval, std::function<void()> report);
  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;
  void finish();

 private:
  enum class State { running, finishing, abandoned };
  void loop(std::chrono::milliseconds interval, const std::function<void()>& report);
  void end(State state);

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::running;
  std::thread thread_;
};

}  // namespace stepnet
