#include "stepnet/engine.h"

#include <exception>
#include <thread>
#include <unordered_set>

#include "core/autograd/capture.h"
#include "core/autograd/gradient_buffer.h"
#include "core/autograd/graph_task.h"

namespace stepnet::autograd {
namespace {

// So many passes inside one another share a stack; those inside of these get another one.
constexpr int kMostOnOneStack = 60;
constexpr int kMostThreads = 1024;

Gradients run_pass(PassRequest request) {
  GraphTask task(std::move(request));
  const TapeState here = tape_state();
  if (here.depth == 0 || here.depth % kMostOnOneStack != 0) return task.run();
  Gradients results;
  std::exception_ptr problem;
  std::thread([&] {
    tape_state() = here;
    try {
      results = task.run();
    } catch (...) {
      problem = std::current_exception();
    }
    tape_state() = {};
  }).join();
  if (problem) std::rethrow_exception(problem);
  return results;
}

// The gradients of the roots, checked; ones where none is given.
Gradients root_gradients(const std::vector<Edge>& roots, Gradients given) {
  require(given.empty() || given.size() == roots.size(), "{} gradients are given for {} roots", given.size(),
          roots.size());
  given.resize(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const TensorType& type = roots[i].node->outputs()[roots[i].index];
    if (given[i].defined()) {
      if (!given[i].is_sparse() && given[i].value().shape() != type.shape)
        fail("root {} is {}, but its gradient is {}", i, type, given[i].value());
      given[i] = checked_gradient(std::move(given[i]), type, fmt::format("root {}", i));
      continue;
    }
    if (type.shape.size() != 1)
      throw Error(fmt::format("root {} is {}, and only one of a single element can start without a gradient", i, type),
                  "give its gradient, or sum it up first");
    given[i] = filled(type, device_of_output(*roots[i].node), 1);
  }
  return given;
}

std::vector<Edge> edges_of(const std::vector<Variable>& variables, const char* what) {
  std::vector<Edge> edges;
  for (size_t i = 0; i < variables.size(); ++i) {
    require(variables[i].defined(), "{} {} is undefined", what, i);
    edges.push_back(variables[i].gradient_edge());
    if (!edges.back().valid())
      throw Error(fmt::format("{} {}, {}, does not require a gradient", what, i, variables[i].value()),
                  "set requires_grad on the leaves that it is computed from");
  }
  return edges;
}

template <class Options>
PassRequest request_for(std::vector<Edge> roots, Gradients gradients, const Options& options) {
  require(!roots.empty(), "there is no root to start from");
  PassRequest request;
  {
    const NoGrad no_grad;
    request.gradients = root_gradients(roots, std::move(gradients));
  }
  request.roots = std::move(roots);
  request.recording = options.create_graph;
  request.keep_saved = options.keep_graph || options.create_graph;
  require(options.threads > 0 && options.threads <= kMostThreads, "a backward pass takes 1 to {} threads, not {}",
          kMostThreads, options.threads);
  if (options.threads > 1) refuse_captured("a backward pass on several threads", "run it on one");
  // What is recorded is numbered in the order of running, which the next pass adds gradients by.
  request.threads = options.create_graph ? 1 : options.threads;
  return request;
}

}  // namespace

void backward_edges(const std::vector<Edge>& roots, Gradients gradients, const BackwardOptions& options) {
  PassRequest request = request_for(roots, std::move(gradients), options);
  request.wanted = edges_of(options.inputs, "input");
  for (const Variable& v : options.inputs) request.runs_node.push_back(v.is_leaf());
  Gradients arrived = run_pass(std::move(request));
  std::unordered_set<VariableState*> done;
  for (size_t i = 0; i < arrived.size(); ++i)
    if (arrived[i].defined() && done.insert(options.inputs[i].state()).second)
      accumulate_gradient(options.inputs[i], std::move(arrived[i]), options.create_graph);
}

void backward(const std::vector<Variable>& roots, const Gradients& gradients, const BackwardOptions& options) {
  backward_edges(edges_of(roots, "root"), gradients, options);
}

Gradients grad_edges(const std::vector<Edge>& outputs, const std::vector<Edge>& inputs, const GradOptions& options) {
  require(!inputs.empty(), "grad needs at least one input");
  PassRequest request = request_for(outputs, options.grad_outputs, options);
  request.wanted = inputs;
  request.runs_node.assign(inputs.size(), false);
  Gradients results = run_pass(std::move(request));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined()) continue;
    if (options.materialize) {
      results[i] = filled(inputs[i].node->outputs()[inputs[i].index], device_of_output(*inputs[i].node), 0);
    } else if (!options.allow_unused) {
      throw Error(fmt::format("no output depends on input {}", i), "leave it out, or set allow_unused");
    }
  }
  return results;
}

Gradients grad(const std::vector<Variable>& outputs, const std::vector<Variable>& inputs, const GradOptions& options) {
  const std::vector<Edge> roots = edges_of(outputs, "output");
  return grad_edges(roots, edges_of(inputs, "input"), options);
}

bool will_run(const Node& node) {
  require(tape_state().task != nullptr, "no backward pass is running on this thread");
  return tape_state().task->will_run(node);
}

void when_done(std::function<void()> fn) {
  require(tape_state().task != nullptr, "no backward pass is running on this thread");
  tape_state().task->when_done(std::move(fn));
}

uint64_t running_pass() { return tape_state().task ? tape_state().task->number() : 0; }

}  // namespace stepnet::autograd
