// Node: the derivative of one recorded operator. Its inputs are the gradients of the operator's outputs, its outputs
// those of the operator's inputs, and its edges say where these flow to.
//
// A node owns the nodes behind it. A chain of any length is let go of without recursion, also one that leads through
// variables that a node's saved values or hooks hold.
// Threads: building one belongs to the recording thread; several backward passes may run one node in turn, under its
// lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stepnet/op_spec.h"
#include "stepnet/stream_order.h"
#include "stepnet/tape.h"
#include "stepnet/variable.h"

namespace stepnet::autograd {

// What a derivative is asked for.
struct NodeRun {
  std::vector<bool> wanted;  // per edge: the gradient is needed now
  bool keep_saved = false;   // the node may run again
  bool recording = false;    // gradients of gradients will be asked for
};

// The gradients of all of the node's forward outputs; a hook may return others, as many, or nothing to keep them.
using Gradients = std::vector<VariableGradient>;
using NodePreHook = std::function<Gradients(const Gradients& gradients)>;
// The same for what the node has computed; `gradients` is what it got, undefined where it was moved away.
using NodePostHook = std::function<Gradients(const Gradients& computed, const Gradients& gradients)>;

// Hooks of one place, by number, in order of registration.
template <class Fn>
class HookList {
 public:
  uint64_t add(Fn fn) {
    hooks_.emplace(++last_, std::move(fn));
    return last_;
  }
  void remove(uint64_t id) { hooks_.erase(id); }
  bool empty() const { return hooks_.empty(); }
  std::vector<Fn> all() const {  // a copy, as a hook may remove itself
    std::vector<Fn> list;
    for (const auto& hook : hooks_) list.push_back(hook.second);
    return list;
  }

 private:
  std::map<uint64_t, Fn> hooks_;
  uint64_t last_ = 0;
};

struct NodeHooks {
  std::map<int, HookList<GradientHook>> of_outputs;      // by forward output
  std::map<int, std::weak_ptr<VariableState>> retained;  // by forward output
  HookList<NodePreHook> before;
  HookList<NodePostHook> after;
};

class Node : public std::enable_shared_from_this<Node> {
 public:
  // `outputs`: of the forward operator, to check gradients against and to make zeros.
  Node(std::vector<Edge> edges, std::vector<TensorType> outputs, Place place);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual std::string name() const = 0;                        // such as "MulGradient" for a Mul
  virtual std::string forward_name() const { return name(); }  // what messages say ran forward, such as "Mul"
  // One gradient per edge, undefined where it is not wanted or none. Those given are undefined where nothing arrived.
  virtual Gradients apply(Gradients gradients, const NodeRun& run) = 0;
  virtual void release() {}  // lets go of saved values
  // What flows along edge `i` of those that lead somewhere: what the derivative computes; nothing, of an input of which
  // only the shape matters; or zero whatever arrives. Nothing runs only for the last two.
  enum class Flow : uint8_t { computed, nothing, zero };
  virtual Flow flow(size_t /*i*/) const { return Flow::computed; }
  // Gradients that arrive as sparse rows are handed on as they are, instead of being made dense.
  virtual bool takes_sparse() const { return false; }
  // Hooks on the gradient of a forward output, and what retains it.
  virtual std::vector<GradientHook> output_hooks(int output) const;

  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<TensorType>& outputs() const { return outputs_; }
  // Rises with every node that the process makes; those of leaves are the largest. Later nodes run first.
  uint64_t sequence() const { return sequence_; }
  // Length of the longest path to a node without edges. If a path leads from a to b, a's is larger.
  uint64_t height() const { return height_; }
  Place place() const { return place_; }
  // On a GPU: the stream that the operator ran on, where its derivative runs, too.
  const std::optional<StreamId>& stream() const { return stream_; }
  void set_stream(std::optional<StreamId> stream) { stream_ = stream; }
  // With anomaly mode: the node whose derivative made this one.
  const std::shared_ptr<Node>& parent() const { return parent_; }

  void add_place(Error& error) const;       // a line that says where it ran forward
  [[noreturn]] void fail_released() const;  // a backward pass has run here and let go of what was saved

  NodeHooks& hooks();  // made when first asked for
  NodeHooks* hooks_if_any() const { return hooks_.get(); }
  HookHandle register_pre_hook(NodePreHook hook);
  HookHandle register_post_hook(NodePostHook hook);
  HookHandle register_output_hook(int output, GradientHook hook);

 protected:
  void set_sequence(uint64_t sequence) { sequence_ = sequence; }
  // Of a node that is made before the operator has run.
  void set_outputs(std::vector<TensorType> outputs) { outputs_ = std::move(outputs); }

 private:
  std::vector<Edge> edges_;
  std::vector<TensorType> outputs_;
  std::unique_ptr<NodeHooks> hooks_;
  std::shared_ptr<Node> parent_;
  uint64_t sequence_;
  uint64_t height_ = 0;
  Place place_;
  std::optional<StreamId> stream_;
};

}  // namespace stepnet::autograd
