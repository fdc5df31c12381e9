#include "stepnet/node.h"

#include <algorithm>
#include <atomic>

#include "stepnet/tape.h"

namespace stepnet::autograd {
namespace {

std::atomic<uint64_t> g_last_sequence{0};

}  // namespace

Node::Node(std::vector<Edge> edges, std::vector<TensorType> outputs, Place place)
    : edges_(std::move(edges)),
      outputs_(std::move(outputs)),
      sequence_(g_last_sequence.fetch_add(1, std::memory_order_relaxed) + 1),
      place_(place) {
  for (const Edge& edge : edges_)
    if (edge.node) height_ = std::max(height_, edge.node->height() + 1);
  const TapeState& state = tape_state();
  if (state.anomaly && state.running) parent_ = state.running->shared_from_this();
}

Node::~Node() {
  for (Edge& edge : edges_) let_go(std::move(edge.node));
  let_go(std::move(parent_));
}

void Node::add_place(Error& error) const {
  error.add("at", fmt::format("{} ran forward at {}", forward_name(), place_.str()));
}

void Node::fail_released() const {
  Error error(fmt::format("{}: a backward pass has run here before and let go of the values that were saved", name()),
              "keep the graph in the pass before (keep_graph)");
  add_place(error);
  throw error;
}

std::vector<GradientHook> Node::output_hooks(int output) const {
  if (!hooks_) return {};
  const auto it = hooks_->of_outputs.find(output);
  return it == hooks_->of_outputs.end() ? std::vector<GradientHook>{} : it->second.all();
}

NodeHooks& Node::hooks() {
  if (!hooks_) hooks_ = std::make_unique<NodeHooks>();
  return *hooks_;
}

HookHandle Node::register_pre_hook(NodePreHook hook) {
  const uint64_t id = hooks().before.add(std::move(hook));
  return HookHandle([node = weak_from_this(), id] {
    if (const auto n = node.lock()) n->hooks().before.remove(id);
  });
}

HookHandle Node::register_post_hook(NodePostHook hook) {
  const uint64_t id = hooks().after.add(std::move(hook));
  return HookHandle([node = weak_from_this(), id] {
    if (const auto n = node.lock()) n->hooks().after.remove(id);
  });
}

HookHandle Node::register_output_hook(int output, GradientHook hook) {
  const uint64_t id = hooks().of_outputs[output].add(std::move(hook));
  return HookHandle([node = weak_from_this(), output, id] {
    if (const auto n = node.lock()) n->hooks().of_outputs[output].remove(id);
  });
}

}  // namespace stepnet::autograd
