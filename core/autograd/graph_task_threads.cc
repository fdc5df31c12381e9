// A backward pass on several threads.
//
// Whoever is free runs the latest node that is ready. Gradients wait until all of a node's have arrived and are then
// added in the order in which one thread would have: of the latest recorded producer first.
#include <algorithm>
#include <thread>

#include "core/autograd/graph_task.h"
#include "core/autograd/stream_order.h"
#include "core/compute/parallel.h"

namespace stepnet::autograd {

void GraphTask::when_done(std::function<void()> fn) {
  const std::lock_guard lock(lock_);
  at_end_.push_back(std::move(fn));
}

void GraphTask::run_on_threads() {
  const TapeState here = tape_state();
  const std::vector<StreamId> streams = streams_here();
  std::vector<std::thread> helpers;
  const auto help = [&] {
    tape_state() = here;
    for (const StreamId& s : streams) set_stream(s);
    work();
    tape_state() = {};
  };
  try {
    for (int i = 1; i < request_.threads; ++i) helpers.emplace_back(help);
  } catch (const std::system_error&) {
    // Those that there are do it.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (problem_) std::rethrow_exception(problem_);
}

// The calling thread's streams of the devices that the pass runs on: leaves add there.
std::vector<StreamId> GraphTask::streams_here() const {
  std::vector<StreamId> streams;
  for (const auto& [node, visit] : visits_) {
    if (!node->stream()) continue;
    const Device device = node->stream()->device;
    if (std::ranges::none_of(streams, [&](const StreamId& s) { return s.device == device; }))
      streams.push_back(*stream_now(device));
  }
  return streams;
}

void GraphTask::work() {
  const SerialScope serial;
  std::unique_lock lock(lock_);
  while (true) {
    changed_.wait(lock, [&] { return !ready_.empty() || running_ == 0 || problem_; });
    if (problem_ || ready_.empty()) break;
    Node* node = ready_.top();
    ready_.pop();
    ++running_;
    lock.unlock();
    std::exception_ptr problem;
    try {
      run_node(*node);
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    --running_;
    if (problem && !problem_) problem_ = problem;
  }
  changed_.notify_all();
}

void GraphTask::add_arrivals(Node& node, Visit& visit) {
  std::sort(visit.arrivals.begin(), visit.arrivals.end(), [](const Arrival& a, const Arrival& b) {
    return a.sequence != b.sequence ? a.sequence > b.sequence : a.edge < b.edge;
  });
  const std::shared_ptr<Node> target = node.shared_from_this();
  for (Arrival& a : visit.arrivals) add(visit, {target, a.output}, std::move(a.gradient), a.producer);
  visit.arrivals = {};
}

}  // namespace stepnet::autograd
