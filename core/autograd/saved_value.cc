#include "stepnet/saved_value.h"

#include "core/autograd/variable_state.h"
#include "stepnet/node.h"
#include "stepnet/record.h"
#include "stepnet/tape.h"

namespace stepnet::autograd {
namespace {

void check_version(const Tensor& tensor, uint64_t saved, const Node& node, std::string_view what) {
  if (tensor.version() == saved) return;
  Error error(fmt::format("{}: {}, {}, was saved at version {} and is at version {} now: it was written in place since",
                          node.name(), what, tensor, saved, tensor.version()),
              "write to another variable, or copy it before");
  node.add_place(error);
  throw error;
}

// For a scope: hooks can see which node a value is saved for.
class SavingScope {
 public:
  explicit SavingScope(const Node* node) : before_(std::exchange(tape_state().saving, node)) {}
  ~SavingScope() { tape_state().saving = before_; }
  SavingScope(const SavingScope&) = delete;
  SavingScope& operator=(const SavingScope&) = delete;

 private:
  const Node* before_;
};

}  // namespace

SavedValueHooksScope::SavedValueHooksScope(SavedValueHooks hooks) : before_(tape_state().hooks) {
  if (const char* reason = tape_state().hooks_refused) fail("{}", reason);
  tape_state().hooks = std::make_shared<const SavedValueHooks>(std::move(hooks));
}
SavedValueHooksScope::~SavedValueHooksScope() { tape_state().hooks = before_; }

NoSavedValueHooks::NoSavedValueHooks(const char* reason) : before_(tape_state().hooks_refused) {
  if (tape_state().hooks) fail("{}", reason);
  tape_state().hooks_refused = reason;
}
NoSavedValueHooks::~NoSavedValueHooks() { tape_state().hooks_refused = before_; }

SavedValue::SavedValue(const Tensor& value, const Node* node) : version_(value.version()) {
  if (const auto& hooks = tape_state().hooks) {
    const SavingScope saving(node);
    pack(hooks, value);
  } else {
    kind_ = Kind::tensor;
    tensor_ = value;
  }
}

void SavedValue::pack(std::shared_ptr<const SavedValueHooks> hooks, const Tensor& tensor) {
  const NoGrad no_grad;
  const uint64_t before = tensor.version();
  packed_ = std::make_shared<Packed>();
  packed_->object = hooks->pack(tensor);
  packed_->hooks = std::move(hooks);
  packed_->type = tensor.str();
  packed_->from = tensor.storage();
  require(tensor.version() == before, "a hook that packs a saved value has written to it ({})", tensor);
  count(TapeEvent::value_packed);
  kind_ = Kind::packed;
}

void SavedValue::register_hooks(SavedValueHooks hooks) {
  require(kind_ != Kind::nothing, "there is no saved value here to register hooks on");
  require(kind_ != Kind::released, "hooks cannot be registered on a saved value that has been released");
  require(kind_ != Kind::packed, "this saved value has hooks already");
  pack(std::make_shared<const SavedValueHooks>(std::move(hooks)), tensor_);
  tensor_ = {};
}

Tensor SavedValue::unpack_by_hook(const Node& node, std::string_view what) const {
  const NoGrad no_grad;
  const std::shared_ptr<Packed> packed = packed_;  // which a hook might release
  Tensor tensor;
  try {
    tensor = packed->hooks->unpack(packed->object);
    require(tensor.defined(), "the hook that unpacks a saved value returned nothing");
  } catch (Error& e) {
    e.add("for", fmt::format("{} of {}, which ran forward at {}", what, node.name(), node.place().str()));
    throw;
  }
  count(TapeEvent::value_unpacked);
  return tensor;
}

Variable SavedValue::unpack(const Edge& edge, const Node& node, std::string_view what) const {
  if (kind_ == Kind::nothing) return {};
  if (kind_ == Kind::released) node.fail_released();
  Tensor tensor = tensor_;
  if (kind_ == Kind::packed) {
    tensor = unpack_by_hook(node, what);
    // A packed object of its own does not care what happened to the original.
    if (tensor.storage() && tensor.storage() == packed_->from.lock()) check_version(tensor, version_, node, what);
  } else {
    check_version(tensor, version_, node, what);
  }
  Variable v = edge.valid() ? variable_of(std::move(tensor), edge.node, edge.index) : Variable(std::move(tensor));
  v.state()->tangents = tangents_;
  return v;
}

void SavedValue::release() {
  if (kind_ != Kind::nothing) kind_ = Kind::released;
  tensor_ = {};
  packed_.reset();
  tangents_.reset();
}

}  // namespace stepnet::autograd
