#include "core/autograd/graph_task.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "core/autograd/gradient_buffer.h"
#include "core/autograd/variable_state.h"
#include "core/compute/threads.h"
#include "stepnet/half.h"
#include "stepnet/stream_order.h"
#include "stepnet/tensor.h"

namespace stepnet::autograd {
namespace {

std::atomic<uint64_t> g_passes{0};

// For a scope: this thread runs that pass, and records or does not.
class PassScope {
 public:
  PassScope(GraphTask& task, bool recording) : before_(tape_state()) {
    TapeState& s = tape_state();
    s.task = &task;
    s.running = nullptr;
    s.recording = recording;
    ++s.depth;
  }
  ~PassScope() {
    TapeState& s = tape_state();
    s.task = before_.task;
    s.running = before_.running;
    s.recording = before_.recording;
    s.depth = before_.depth;
  }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  TapeState before_;
};

template <class T>
bool any_nan(const Tensor& t) {
  const Tensor here = on_device(t, {});
  const auto values = here.span<T>();
  return std::any_of(values.begin(), values.end(), [](T v) { return v != v; });
}

bool has_nan(const Variable& v) {
  if (!v.defined()) return false;
  bool found = false;
  if (with_half(v.dtype(), [&](auto zero) { found = any_nan<decltype(zero)>(v.value()); })) return found;
  if (v.dtype() == DType::float32) return any_nan<float>(v.value());
  return v.dtype() == DType::float64 && any_nan<double>(v.value());
}

// With anomaly mode: the nodes whose derivatives made this one, the nearest first.
void add_makers(Error& error, const Node& node) {
  for (const Node* p = node.parent().get(); p; p = p->parent().get())
    error.add("for", fmt::format("{}, which ran forward at {}", p->name(), p->place().str()));
}

// What a hook returns in place of what it got.
void replace(VariableGradient& gradient, VariableGradient other, const TensorType& type, const Node& node) {
  if (!other.defined()) return;
  gradient = checked_gradient(std::move(other), type, "a hook's gradient for ", &node);
}

}  // namespace

GraphTask::GraphTask(PassRequest request)
    : request_(std::move(request)), outer_(tape_state().task), number_(++g_passes) {
  results_.resize(request_.wanted.size());
}

bool GraphTask::is_within(const GraphTask& other) const {
  const GraphTask* task = this;
  while (task && task != &other) task = task->outer_;
  return task != nullptr;
}

bool GraphTask::wants(const Edge& edge) const {
  if (!edge.node) return false;
  if (request_.wanted.empty()) return true;
  const auto it = visits_.find(edge.node.get());
  if (it == visits_.end()) return false;
  const Visit& v = it->second;
  return v.needed ||
         std::any_of(v.captures.begin(), v.captures.end(), [&](const Capture& c) { return c.output == edge.index; });
}

bool GraphTask::will_run(const Node& node) const {
  const auto it = visits_.find(&node);
  return it != visits_.end() && (it->second.needed || !it->second.captures.empty());
}

// Counts the gradients that will flow to each node.
void GraphTask::discover() {
  uint64_t least = 0;
  if (!request_.wanted.empty()) {
    least = UINT64_MAX;
    for (const Edge& e : request_.wanted) least = std::min(least, e.node->height());
  }
  std::vector<Node*> open, found;
  const auto visit = [&](const Edge& edge) {
    if (!edge.node) return;
    const auto [it, is_new] = visits_.try_emplace(edge.node.get());
    ++it->second.waiting;
    if (!is_new) return;
    it->second.needed = request_.wanted.empty();
    found.push_back(edge.node.get());
    if (edge.node->height() <= least && !request_.wanted.empty()) return;  // nothing wanted is behind it
    it->second.expanded = true;
    open.push_back(edge.node.get());
  };
  for (const Edge& root : request_.roots) visit(root);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (size_t i = 0; i < node->edges().size(); ++i) {
      const Edge& edge = node->edges()[i];
      if (!edge.node) continue;
      const Node::Flow flow = node->flow(i);
      if (flow == Node::Flow::computed) visit(edge);
      if (flow == Node::Flow::zero) zeros_.push_back(edge);
    }
  }
  if (!request_.wanted.empty()) mark_needed(std::move(found));
}

// A node runs if an edge of it leads to one that runs, or to a gradient that is taken. Nodes behind have lesser
// heights, so in this order they are known first.
void GraphTask::mark_needed(std::vector<Node*> found) {
  for (size_t i = 0; i < request_.wanted.size(); ++i) {
    const auto it = visits_.find(request_.wanted[i].node.get());
    if (it == visits_.end()) continue;  // no root depends on it
    if (request_.runs_node[i])
      it->second.needed = true;
    else
      it->second.captures.push_back({request_.wanted[i].index, i});
  }
  std::sort(found.begin(), found.end(), [](const Node* a, const Node* b) { return a->height() < b->height(); });
  for (const Node* node : found) {
    Visit& v = visits_.at(node);
    for (size_t i = 0; i < node->edges().size() && !v.needed; ++i)
      v.needed = wants(node->edges()[i]) && node->flow(i) == Node::Flow::computed;
  }
}

// The nodes that known zeros flow to, and on from there.
std::unordered_set<Node*> GraphTask::find_zeros() const {
  std::unordered_set<Node*> found;
  std::vector<Node*> open;
  const auto visit = [&](const Edge& edge) {
    if (edge.node && found.insert(edge.node.get()).second) open.push_back(edge.node.get());
  };
  for (const Edge& edge : zeros_) visit(edge);
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (size_t i = 0; i < node->edges().size(); ++i)
      if (node->flow(i) != Node::Flow::nothing) visit(node->edges()[i]);
  }
  return found;
}

// Where nothing but known zeros has arrived, a gradient that is taken is zeros, and so is a leaf's.
void GraphTask::set_zeros() {
  const auto is_missing = [](const VariableGradient& g) { return !g.defined(); };
  if (zeros_.empty() || (!request_.wanted.empty() && std::ranges::none_of(results_, is_missing))) return;
  const std::unordered_set<Node*> zero = find_zeros();
  const auto zeros = [](const Node& node, int output) {
    return filled(node.outputs()[output], device_of_output(node), 0);
  };
  const auto has_gradient = [](const Node& node) {
    const Variable leaf = leaf_of(node);
    return !leaf.defined() || leaf.grad().defined();
  };
  for (size_t i = 0; i < results_.size(); ++i) {
    const Edge& edge = request_.wanted[i];
    if (!is_missing(results_[i]) || zero.count(edge.node.get()) == 0) continue;
    if (!request_.runs_node[i] || !has_gradient(*edge.node)) results_[i] = zeros(*edge.node, edge.index);
  }
  if (!request_.wanted.empty()) return;
  for (const Node* node : zero)
    if (!has_gradient(*node) && leaf_of(*node).requires_grad())
      accumulate_gradient(leaf_of(*node), zeros(*node, 0), request_.recording);
}

Gradients GraphTask::run() {
  const PassScope scope(*this, request_.recording);
  discover();
  for (size_t i = 0; i < request_.roots.size(); ++i)
    deliver(request_.roots[i], std::move(request_.gradients[i]), nullptr, i);
  request_.gradients.clear();
  if (request_.threads > 1) run_on_threads();
  while (!ready_.empty()) {
    Node* node = ready_.top();
    ready_.pop();
    run_node(*node);
  }
  join_streams();
  set_zeros();
  for (size_t i = 0; i < at_end_.size(); ++i) {  // which may add others
    const std::function<void()> fn = std::move(at_end_[i]);
    fn();
  }
  return std::move(results_);
}

// The caller's streams go on after all that the pass has queued anywhere.
void GraphTask::join_streams() {
  for (const StreamId& used : streams_)
    if (const std::optional<StreamId> now = stream_now(used.device); now != used) wait({*now, used});
  streams_.clear();
}

// `place`: of the edge among those of the node that the gradient is from.
void GraphTask::deliver(const Edge& edge, VariableGradient gradient, const Node* from, size_t place) {
  if (!edge.node) return;
  const auto it = visits_.find(edge.node.get());
  if (it == visits_.end()) return;
  Visit& v = it->second;
  const bool arrives = gradient.defined() && wants(edge);
  const std::optional<StreamId> producer = from ? from->stream() : stream_now(device_of_gradient(gradient));
  if (arrives)
    gradient =
        checked_gradient(std::move(gradient), edge.node->outputs()[edge.index], "what gets a gradient from ", from);
  if (request_.threads > 1) {
    const std::lock_guard lock(lock_);
    if (arrives)
      v.arrivals.push_back({from ? from->sequence() : UINT64_MAX, place, edge.index, producer, std::move(gradient)});
    if (--v.waiting > 0) return;
    ready_.push(edge.node.get());
    changed_.notify_one();
    return;
  }
  if (arrives) add(v, edge, std::move(gradient), producer);
  if (--v.waiting == 0) ready_.push(edge.node.get());
}

// On a GPU, on the consumer's stream and behind what made it; see stepnet/stream_order.h.
StreamPlan GraphTask::plan_of(const Edge& edge, const VariableGradient& gradient,
                              std::optional<StreamId> producer) const {
  std::vector<Device> parts;
  for (const Variable* part : {&gradient.dense, &gradient.indices, &gradient.values})
    if (part->defined()) parts.push_back(part->value().device());
  std::optional<StreamId> consumer = edge.node->stream();
  if (!consumer) consumer = stream_now(parts.at(0));  // a leaf adds where the caller is
  return plan_streams(parts, producer, consumer);
}

void GraphTask::add(Visit& visit, const Edge& edge, VariableGradient gradient, std::optional<StreamId> producer) {
  if (device_of_gradient(gradient).kind == DeviceKind::cpu) return add(visit, edge, std::move(gradient));
  const StreamPlan plan = plan_of(edge, gradient, producer);
  prepare_to_add(plan, gradient);
  if (plan.at_node) visit.waits.push_back(*plan.at_node);
  {
    const std::lock_guard lock(lock_);
    streams_.push_back(*plan.adds);
  }
  const OnStream stream(plan.adds);
  const OnDevice device(plan.adds->device);
  add(visit, edge, std::move(gradient));
}

void GraphTask::add(Visit& visit, const Edge& edge, VariableGradient gradient) {
  if (visit.gradients.empty()) visit.gradients.resize(edge.node->outputs().size());
  VariableGradient& sum = visit.gradients[edge.index];
  if (sum.defined()) {
    sum = add_gradients(std::move(sum), std::move(gradient), edge.node->outputs()[edge.index]);
  } else {
    sum = std::move(gradient);
    count(TapeEvent::gradient_moved);
  }
}

void GraphTask::run_output_hooks(Node& node, Gradients& gradients) {
  for (size_t o = 0; o < gradients.size(); ++o) {
    if (!gradients[o].defined()) continue;
    for (const GradientHook& hook : node.output_hooks(static_cast<int>(o)))
      replace(gradients[o], hook(gradients[o]), node.outputs()[o], node);
  }
}

// A gradient that is taken goes to whoever has asked for it, and is not added a second time.
void GraphTask::retain(const Visit& visit, Node& node) const {
  if (!node.hooks_if_any()) return;
  for (const auto& [o, weak] : node.hooks_if_any()->retained) {
    const auto is_this = [output = o](const Capture& c) { return c.output == output; };
    if (std::any_of(visit.captures.begin(), visit.captures.end(), is_this)) continue;
    if (const auto state = weak.lock(); state && visit.gradients[o].defined())
      accumulate_gradient(Variable(state), visit.gradients[o], request_.recording);
  }
}

void GraphTask::capture(const Visit& visit, Node& node) {
  for (const Capture& c : visit.captures) {
    VariableGradient& result = results_[c.result];
    result = visit.gradients[c.output];
    if (result.is_sparse() && !node.takes_sparse()) result = make_dense(result, node.outputs()[c.output]);
  }
}

// The gradients go on from the caller's stream: a leaf adds there what was made on the node's.
void GraphTask::run_node(Node& node) {
  Visit& visit = visits_.at(&node);
  if (!visit.arrivals.empty()) add_arrivals(node, visit);
  visit.gradients.resize(node.outputs().size());
  for (const StreamWait& w : visit.waits) wait(w);
  Gradients computed = run_on_its_stream(node, visit);
  for (size_t i = 0; i < computed.size(); ++i)
    if (node.flow(i) == Node::Flow::computed) deliver(node.edges()[i], std::move(computed[i]), &node, i);
}

// One gradient for each edge of the node, or none at all if nobody waits for them.
Gradients GraphTask::run_on_its_stream(Node& node, Visit& visit) {
  const OnStream stream(node.stream());
  const OnDevice device(node.stream() ? node.stream()->device : Device{});
  if (visit.needed || !visit.captures.empty()) run_output_hooks(node, visit.gradients);
  if (visit.needed) retain(visit, node);
  capture(visit, node);
  if (!visit.needed) {
    visit.gradients.clear();
    return Gradients(visit.expanded ? node.edges().size() : 0);  // whoever waits for it is not to wait for ever
  }
  Gradients computed = run_derivative(node, std::move(visit.gradients));
  visit.gradients = {};
  if (computed.empty()) computed.resize(node.edges().size());
  if (computed.size() != node.edges().size())
    fail("{} has made {} gradients for {} inputs", node.name(), computed.size(), node.edges().size());
  const TapeState& state = tape_state();
  if (state.anomaly && state.anomaly_checks_nan) check_nan(node, computed);
  return computed;
}

Gradients GraphTask::run_derivative(Node& node, Gradients gradients) {
  if (!node.takes_sparse())
    for (size_t o = 0; o < gradients.size(); ++o)
      if (gradients[o].is_sparse()) gradients[o] = make_dense(gradients[o], node.outputs()[o]);
  NodeHooks* hooks = node.hooks_if_any();
  if (hooks)
    for (const NodePreHook& hook : hooks->before.all()) {
      Gradients others = hook(gradients);
      for (size_t o = 0; o < others.size() && o < gradients.size(); ++o)
        replace(gradients[o], std::move(others[o]), node.outputs()[o], node);
    }
  NodeRun run{.wanted = {}, .keep_saved = request_.keep_saved, .recording = request_.recording};
  run.wanted.reserve(node.edges().size());
  for (const Edge& edge : node.edges()) run.wanted.push_back(wants(edge));
  TapeState& state = tape_state();
  Node* before = std::exchange(state.running, &node);
  count(TapeEvent::node_run);
  const Gradients seen = hooks && !hooks->after.empty() ? gradients : Gradients{};
  Gradients computed;
  try {
    computed = node.apply(std::move(gradients), run);
    if (hooks = node.hooks_if_any(); hooks)
      for (const NodePostHook& hook : hooks->after.all()) {
        Gradients others = hook(computed, seen);
        for (size_t i = 0; i < others.size() && i < computed.size(); ++i)
          if (others[i].defined()) computed[i] = std::move(others[i]);
      }
  } catch (Error& e) {
    state.running = before;
    if (!e.has("for")) add_makers(e, node);
    throw;
  } catch (...) {
    state.running = before;
    throw;
  }
  state.running = before;
  if (!request_.keep_saved) node.release();
  return computed;
}

void GraphTask::check_nan(const Node& node, const Gradients& gradients) const {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!has_nan(gradients[i].dense) && !has_nan(gradients[i].values)) continue;
    Error error(fmt::format("{} has made a NaN in the gradient of input {}", node.name(), i));
    node.add_place(error);
    add_makers(error, node);
    throw error;
  }
}

// A backward pass on several threads.

//
// Whoever is free runs the latest node that is ready. Gradients wait until all of a node's have arrived and are then

// added in the order in which one thread would have: of the latest recorded producer first.

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
