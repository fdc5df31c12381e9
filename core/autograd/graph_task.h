// GraphTask: one backward pass.
// Threads: belongs to the thread that runs it, and to those that help it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "stepnet/engine.h"

namespace stepnet::autograd {

// What a pass is to do, in terms of the graph.
struct PassRequest {
  std::vector<Edge> roots;
  Gradients gradients;       // of the roots
  std::vector<Edge> wanted;  // empty: every leaf
  // Per wanted edge: run the node there (a leaf's) instead of taking what arrives.
  std::vector<bool> runs_node;
  bool recording = false, keep_saved = false;
  int threads = 1;
};

class GraphTask {
 public:
  explicit GraphTask(PassRequest request);
  // Runs the pass; the gradients that arrived at the wanted edges.
  Gradients run();

  bool will_run(const Node& node) const;
  void when_done(std::function<void()> fn);
  uint64_t number() const { return number_; }
  // True of itself, and of a pass that a hook or a derivative of `other` has started, on whichever thread.
  bool is_within(const GraphTask& other) const;

 private:
  struct Capture {
    int output;     // of the forward operator
    size_t result;  // place in the pass's results
  };
  // A gradient that waits for those that are added before it.
  struct Arrival {
    uint64_t sequence;  // of the node that it is from
    size_t edge;
    int output;
    std::optional<StreamId> producer;
    VariableGradient gradient;
  };
  struct Visit {
    int waiting = 0;  // gradients that have yet to arrive
    bool needed = false;
    bool expanded = false;  // what its edges lead to was counted
    std::vector<Capture> captures;
    Gradients gradients;            // per forward output, the sum so far
    std::vector<Arrival> arrivals;  // with several threads
    std::vector<StreamWait> waits;  // before its node runs
  };

  void discover();
  void mark_needed(std::vector<Node*> found);
  std::unordered_set<Node*> find_zeros() const;
  void set_zeros();
  bool wants(const Edge& edge) const;
  void deliver(const Edge& edge, VariableGradient gradient, const Node* from, size_t place);
  void add(Visit& visit, const Edge& edge, VariableGradient gradient);
  void add(Visit& visit, const Edge& edge, VariableGradient gradient, std::optional<StreamId> producer);
  StreamPlan plan_of(const Edge& edge, const VariableGradient& gradient, std::optional<StreamId> producer) const;
  void join_streams();
  void run_on_threads();
  std::vector<StreamId> streams_here() const;
  void work();
  void add_arrivals(Node& node, Visit& visit);
  void run_node(Node& node);
  Gradients run_on_its_stream(Node& node, Visit& visit);
  void capture(const Visit& visit, Node& node);
  Gradients run_derivative(Node& node, Gradients gradients);
  void run_output_hooks(Node& node, Gradients& gradients);
  void retain(const Visit& visit, Node& node) const;
  void check_nan(const Node& node, const Gradients& gradients) const;

  PassRequest request_;
  const GraphTask* outer_;  // inside which this pass was made
  std::unordered_map<const Node*, Visit> visits_;
  // The latest first; leaves before all.
  struct Later {
    bool operator()(const Node* a, const Node* b) const { return a->sequence() < b->sequence(); }
  };
  std::priority_queue<Node*, std::vector<Node*>, Later> ready_;
  Gradients results_;
  std::vector<Edge> zeros_;  // along which what flows is known to be zero
  std::vector<std::function<void()>> at_end_;
  std::vector<StreamId> streams_;  // that the pass has queued work on
  uint64_t number_;

  // With several threads: of what waits and of what is ready.
  std::mutex lock_;
  std::condition_variable changed_;
  int running_ = 0;
  std::exception_ptr problem_;
};

}  // namespace stepnet::autograd
