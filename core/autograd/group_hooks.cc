#include "core/autograd/group_hooks.h"

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "stepnet/engine.h"

namespace stepnet::autograd {
namespace {

// Finds the node of a variable without keeping either.
class Member {
 public:
  explicit Member(const Variable& v)
      : node_(v.is_leaf() ? std::weak_ptr<Node>() : v.grad_fn()),
        leaf_(v.is_leaf() ? v.shared_state() : std::shared_ptr<VariableState>()) {}
  bool takes_part() const {
    const auto leaf = leaf_.lock();
    const std::shared_ptr<Node> node = leaf ? Variable(leaf).gradient_edge().node : node_.lock();
    return node && will_run(*node);
  }

 private:
  std::weak_ptr<Node> node_;
  std::weak_ptr<VariableState> leaf_;
};

// Ends what a group knows of a pass together with the pass, however that ends.
template <class Group>
struct End {
  std::shared_ptr<Group> group;
  uint64_t pass;
  End(std::shared_ptr<Group> g, uint64_t p) : group(std::move(g)), pass(p) {}
  ~End() { group->forget(pass); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
};

// What a group has got in the passes that run now, by their numbers.
class AllGroup : public std::enable_shared_from_this<AllGroup> {
 public:
  using Hook = std::function<void(const Gradients&)>;
  AllGroup(const std::vector<Variable>& variables, Hook hook) : hook_(std::move(hook)) {
    for (const Variable& v : variables) members_.emplace_back(v);
  }

  void arrived(size_t which, const VariableGradient& gradient) {
    const uint64_t pass = running_pass();
    {
      const std::lock_guard lock(mutex_);
      const auto [it, is_new] = passes_.try_emplace(pass);
      if (is_new) begin(it->second, pass);
      it->second.gradients[which] = gradient;
      if (--it->second.missing > 0) return;
    }
    call(pass);
  }

  void forget(uint64_t pass) {
    const std::lock_guard lock(mutex_);
    passes_.erase(pass);
  }

 private:
  struct Pass {
    Gradients gradients;
    int64_t missing = 0;
  };
  void begin(Pass& pass, uint64_t number) {
    pass.gradients.resize(members_.size());
    for (const Member& member : members_) pass.missing += member.takes_part() ? 1 : 0;
    when_done([end = std::make_shared<End<AllGroup>>(shared_from_this(), number)] { end->group->call(end->pass); });
  }

  void call(uint64_t pass) {
    Gradients gradients;
    {
      const std::lock_guard lock(mutex_);
      gradients.swap(passes_.at(pass).gradients);
    }
    if (!gradients.empty()) hook_(gradients);  // else it was called before
  }

  std::vector<Member> members_;
  Hook hook_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Pass> passes_;
};

class AnyGroup : public std::enable_shared_from_this<AnyGroup> {
 public:
  using Hook = std::function<void(size_t, const VariableGradient&)>;
  explicit AnyGroup(Hook hook) : hook_(std::move(hook)) {}

  void arrived(size_t which, const VariableGradient& gradient) {
    {
      const std::lock_guard lock(mutex_);
      if (!passes_.insert(running_pass()).second) return;
    }
    when_done([end = std::make_shared<End<AnyGroup>>(shared_from_this(), running_pass())] {});
    hook_(which, gradient);
  }

  void forget(uint64_t pass) {
    const std::lock_guard lock(mutex_);
    passes_.erase(pass);
  }

 private:
  Hook hook_;
  std::mutex mutex_;
  std::unordered_set<uint64_t> passes_;  // that run now and have called it
};

// Registers the group on every one of the variables.
template <class Group>
HookHandle register_group(const std::shared_ptr<Group>& group, const std::vector<Variable>& variables) {
  std::vector<HookHandle> handles;
  for (size_t i = 0; i < variables.size(); ++i)
    handles.push_back(variables[i].register_hook([group, i](const VariableGradient& g) -> VariableGradient {
      group->arrived(i, g);
      return {};
    }));
  return HookHandle([handles = std::move(handles)]() mutable {
    for (HookHandle& handle : handles) handle.remove();
  });
}

}  // namespace

HookHandle register_all_hook(const std::vector<Variable>& variables, std::function<void(const Gradients&)> hook) {
  return register_group(std::make_shared<AllGroup>(variables, std::move(hook)), variables);
}

HookHandle register_any_hook(const std::vector<Variable>& variables,
                             std::function<void(size_t which, const VariableGradient&)> hook) {
  return register_group(std::make_shared<AnyGroup>(std::move(hook)), variables);
}

}  // namespace stepnet::autograd
