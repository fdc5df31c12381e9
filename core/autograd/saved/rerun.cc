#include "stepnet/rerun.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "core/autograd/tape_tangents.h"
#include "stepnet/engine.h"
#include "stepnet/record.h"
#include "stepnet/saved_value.h"

namespace stepnet::autograd {

// What one run made again and nobody has unpacked yet, by order of saving. Under the lock of its region.
struct RecomputedValues {
  std::map<size_t, Tensor> by_order;
};

namespace {

std::atomic<uint64_t> g_groups{0};

// Ends a second run that has made all that is needed. No Error, and no exception of a user's.
struct EarlyStop {};

// Stands for the region in messages, and for the history of its inputs when it runs again.
class RegionNode : public Node {
 public:
  RegionNode(std::vector<TensorType> inputs, Place place) : Node({}, std::move(inputs), place) {}
  std::string name() const override { return "checkpoint"; }
  Gradients apply(Gradients, const NodeRun&) override {
    throw Error("checkpoint: backward cannot run inside a region that is run again", "use grad");
  }
};

class RegionRun;

// One call of checkpoint. The tokens of its values keep it.
class RegionCall : public std::enable_shared_from_this<RegionCall> {
 public:
  RegionCall(Region fn, const std::vector<Variable>& inputs, const CheckpointOptions& options, Place place);
  std::vector<Variable> run_first(const std::vector<Variable>& inputs);

 private:
  friend class RegionRun;
  // Stands for a value; the saved value holds it.
  struct Token {
    std::shared_ptr<RegionCall> call;
    size_t order;
  };
  struct Saved {
    std::weak_ptr<Token> token;
    TensorType type;
  };
  struct Input {
    SavedValue value;
    bool requires_grad = false;
  };

  std::any pack(const Tensor& value);
  Tensor unpack(const Token& token);
  std::shared_ptr<RecomputedValues> values_of_this_pass();
  void run_again(RecomputedValues& values);
  std::vector<Variable> inputs_again();

  const Region fn_;
  const CheckpointOptions options_;
  const RandomState random_;
  std::shared_ptr<RegionNode> node_;
  std::vector<Input> inputs_;
  std::recursive_mutex lock_;  // of all below
  std::vector<Saved> saved_;
  bool first_run_done_ = false;
  std::map<std::pair<bool, uint64_t>, std::weak_ptr<RecomputedValues>> passes_;  // whether of a group, and its number
};

// A second run: takes down what is saved.
class RegionRun {
 public:
  RegionRun(const RegionCall& call, RecomputedValues& values) : call_(call), values_(values) {
    for (const RegionCall::Saved& s : call_.saved_)
      if (const size_t order = &s - call_.saved_.data(); !s.token.expired()) last_ = order;
  }
  // The value itself stays with the node that saves it now, as `grad` inside the region may read it.
  std::any take(const Tensor& value) {
    const size_t order = next_++;
    if (order >= call_.saved_.size()) {
      require(!call_.first_run_done_, "checkpoint: the region saved {} values when it ran first, and saves more now",
              call_.saved_.size());
      return value;
    }
    const RegionCall::Saved& first = call_.saved_[order];
    require(value.dtype() == first.type.dtype && value.shape() == first.type.shape,
            "checkpoint: value {} that the region saves was {} when it ran first, and is {} now", order, first.type,
            value);
    if (!first.token.expired()) values_.by_order[order] = value;
    if (call_.options_.early_stop && last_ == order) throw EarlyStop();
    return value;
  }
  void check_count() const {
    const size_t count = call_.saved_.size();
    require(next_ >= count, "checkpoint: the region saved {} values when it ran first, and {} now", count, next_);
  }

 private:
  const RegionCall& call_;
  RecomputedValues& values_;
  size_t next_ = 0;
  std::optional<size_t> last_;
};

std::vector<TensorType> types_of(const std::vector<Variable>& variables) {
  std::vector<TensorType> types;
  for (const Variable& v : variables)
    types.push_back(v.defined() ? TensorType::of(v.dtype(), v.shape()) : TensorType{});
  return types;
}

RegionCall::RegionCall(Region fn, const std::vector<Variable>& inputs, const CheckpointOptions& options, Place place)
    : fn_(std::move(fn)),
      options_(options),
      random_(random_state()),
      node_(std::make_shared<RegionNode>(types_of(inputs), place)) {
  for (const Variable& v : inputs)
    inputs_.push_back({v.defined() ? SavedValue(v.value(), node_.get()) : SavedValue(), v.requires_grad()});
}

std::vector<Variable> RegionCall::run_first(const std::vector<Variable>& inputs) {
  const auto pack = [this](const Tensor& value) { return this->pack(value); };
  const auto unpack = [](const std::any& object) {
    const auto token = std::any_cast<std::shared_ptr<Token>>(object);
    return token->call->unpack(*token);
  };
  std::vector<Variable> outputs;
  {
    const SavedValueHooksScope scope({pack, unpack});
    outputs = fn_(inputs);
  }
  const std::lock_guard lock(lock_);
  first_run_done_ = true;
  return outputs;
}

std::any RegionCall::pack(const Tensor& value) {
  const std::lock_guard lock(lock_);
  auto token = std::make_shared<Token>(Token{shared_from_this(), saved_.size()});
  saved_.push_back({token, TensorType::of(value.dtype(), value.shape())});
  return token;
}

std::shared_ptr<RecomputedValues> RegionCall::values_of_this_pass() {
  const uint64_t pass = running_pass();
  RecomputeGroup* group = tape_state().group;
  if (pass == 0 && !group) return std::make_shared<RecomputedValues>();  // of this access alone
  std::erase_if(passes_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<RecomputedValues>& known = passes_[group ? std::pair(true, group->number()) : std::pair(false, pass)];
  std::shared_ptr<RecomputedValues> values = known.lock();
  if (values) return values;
  values = std::make_shared<RecomputedValues>();
  known = values;
  if (group)
    group->keep(values);
  else
    when_done([values] {});  // lets go of them with the pass, whether it ends well or not
  return values;
}

Tensor RegionCall::unpack(const Token& token) {
  const std::lock_guard lock(lock_);
  const std::shared_ptr<RecomputedValues> values = values_of_this_pass();
  if (!values->by_order.contains(token.order)) run_again(*values);
  const auto it = values->by_order.find(token.order);
  require(it != values->by_order.end(), "checkpoint: value {} of the region was not saved again", token.order);
  Tensor value = std::move(it->second);
  values->by_order.erase(it);
  return value;
}

std::vector<Variable> RegionCall::inputs_again() {
  std::vector<Variable> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Edge edge = inputs_[i].requires_grad ? Edge{node_, static_cast<int>(i)} : Edge{};
    inputs.push_back(inputs_[i].value.unpack(edge, *node_, fmt::format("input {}", i)));
  }
  return inputs;
}

void RegionCall::run_again(RecomputedValues& values) {
  RegionRun run(*this, values);
  const std::vector<Variable> inputs = inputs_again();
  const auto pack = [&run](const Tensor& value) { return run.take(value); };
  const auto unpack = [](const std::any& object) { return std::any_cast<Tensor>(object); };
  const SavedValueHooksScope scope({pack, unpack});
  const EnableGrad recording;
  std::optional<RandomStateScope> random;
  if (options_.restore_random) random.emplace(random_);
  try {
    fn_(inputs);
    run.check_count();
  } catch (const EarlyStop&) {
    return;
  }
}

}  // namespace

std::vector<Variable> checkpoint(Region fn, const std::vector<Variable>& inputs, const CheckpointOptions& options,
                                 Place place) {
  if (!tape_state().recording) return fn(inputs);
  if (moves(inputs))
    throw Error("checkpoint: an input has a tangent, and what is computed again would have none",
                "call the region itself in forward mode");
  return std::make_shared<RegionCall>(std::move(fn), inputs, options, place)->run_first(inputs);
}

struct RecomputeGroup::Kept {
  std::mutex mutex;  // nodes of one pass may run on several threads
  std::vector<std::shared_ptr<RecomputedValues>> values;
};

RecomputeGroup::RecomputeGroup() : before_(tape_state().group), number_(++g_groups), kept_(std::make_unique<Kept>()) {
  tape_state().group = this;
}
RecomputeGroup::~RecomputeGroup() { tape_state().group = before_; }
void RecomputeGroup::keep(std::shared_ptr<RecomputedValues> values) {
  const std::lock_guard lock(kept_->mutex);
  kept_->values.push_back(std::move(values));
}

}  // namespace stepnet::autograd
