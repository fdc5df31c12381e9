// SavedValue: a value that a derivative reads, kept from the forward run until its node has run.
//
// The tensor alone is kept, and gets its history back when it is read: so no node owns itself, whatever is written in
// place. Its version is kept too, and reading it after a write in place is an Error. With hooks it is packed when it is
// saved and unpacked when the node runs, each time it is read.
// Threads: as Node.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>

#include "stepnet/variable.h"

namespace stepnet::autograd {

// Turns values that are saved into something else and back. `pack` must not write to the tensor; what it returns is
// kept, and let go of with the node. `unpack` is trusted: its tensor may differ in anything.
struct SavedValueHooks {
  std::function<std::any(const Tensor&)> pack;
  std::function<Tensor(const std::any&)> unpack;
};

// For a scope: everything that is saved on this thread goes through these hooks. Only the innermost pair acts.
class SavedValueHooksScope {
 public:
  explicit SavedValueHooksScope(SavedValueHooks hooks);
  ~SavedValueHooksScope();
  SavedValueHooksScope(const SavedValueHooksScope&) = delete;
  SavedValueHooksScope& operator=(const SavedValueHooksScope&) = delete;

 private:
  std::shared_ptr<const SavedValueHooks> before_;
};

// For a scope: hooks may not be set, and the reason is the Error's text. `reason` must outlive it.
class NoSavedValueHooks {
 public:
  explicit NoSavedValueHooks(const char* reason);
  ~NoSavedValueHooks();
  NoSavedValueHooks(const NoSavedValueHooks&) = delete;
  NoSavedValueHooks& operator=(const NoSavedValueHooks&) = delete;

 private:
  const char* before_;
};

struct LevelTangent;

class SavedValue {
 public:
  SavedValue() = default;  // nothing was saved: reads as undefined
  // `node`: which saves it, for hooks to know.
  explicit SavedValue(const Tensor& value, const Node* node = nullptr);

  // Tangents of the value (forward mode), which travel with it: they are there again when it is unpacked, and go when
  // it is released. No hook sees them.
  void set_tangents(std::shared_ptr<const std::vector<LevelTangent>> tangents) { tangents_ = std::move(tangents); }

  bool holds() const { return kind_ != Kind::nothing; }
  bool is_released() const { return kind_ == Kind::released; }
  // `edge`: where the value's gradient flows to, invalid if it needs none. `node` and `what` are for messages.
  Variable unpack(const Edge& edge, const Node& node, std::string_view what) const;
  void release();

  // One pair for this value alone, on what is kept now. Throws Error on a second pair, after release, or on nothing.
  void register_hooks(SavedValueHooks hooks);
  const std::any* packed() const { return packed_ ? &packed_->object : nullptr; }
  uint64_t saved_version() const { return version_; }

 private:
  enum class Kind : uint8_t { nothing, tensor, packed, released };
  struct Packed {
    std::shared_ptr<const SavedValueHooks> hooks;
    std::any object;
    std::string type;             // of what was packed, for messages
    std::weak_ptr<Storage> from;  // whose version counts if the unpacked tensor shares it
  };
  void pack(std::shared_ptr<const SavedValueHooks> hooks, const Tensor& tensor);
  Tensor unpack_by_hook(const Node& node, std::string_view what) const;

  Kind kind_ = Kind::nothing;
  uint64_t version_ = 0;
  Tensor tensor_;
  std::shared_ptr<Packed> packed_;
  std::shared_ptr<const std::vector<LevelTangent>> tangents_;
};

}  // namespace stepnet::autograd
