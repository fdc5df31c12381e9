#include "stepnet/offload.h"

#include <algorithm>
#include <mutex>

#include "core/autograd/saved/offload_packer.h"
#include "core/autograd/saved/offload_store.h"
#include "stepnet/tape.h"

namespace stepnet::autograd {
namespace {

// All stores, so that a write in place can ask them.
struct Stores {
  std::mutex mutex;
  std::vector<std::weak_ptr<OffloadStore>> all;
  std::atomic<bool> any{false};

  void add(const std::shared_ptr<OffloadStore>& store) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& weak) { return weak.expired(); });
    all.push_back(store);
    any = true;
  }
  std::vector<std::shared_ptr<OffloadStore>> living() {
    const std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<OffloadStore>> list;
    for (const auto& weak : all)
      if (auto store = weak.lock()) list.push_back(std::move(store));
    any = !list.empty();
    return list;
  }
};

Stores& stores() {
  static Stores stores;
  return stores;
}

struct Packed {
  std::shared_ptr<OffloadStore::Ticket> ticket;
  DType dtype;
  Shape shape;
};

std::any pack_value(OffloadStore& store, const Tensor& value, const Node* node, uint64_t group) {
  if (!store.takes(value)) return value;
  return Packed{store.put(value, node, group), value.dtype(), value.shape()};
}

Tensor unpack_value(const std::any& object) {
  if (const auto* kept = std::any_cast<Tensor>(&object)) return *kept;
  const auto& packed = *std::any_cast<Packed>(&object);
  return packed.ticket->get(packed.dtype, packed.shape);
}

SavedValueHooks hooks_of(const std::shared_ptr<OffloadStore>& store) {
  return {[store](const Tensor& value) { return pack_value(*store, value, tape_state().saving, 0); }, unpack_value};
}

class Pieces : public PackedTensors {
 public:
  explicit Pieces(std::vector<std::any> values) : values_(std::move(values)) {}
  std::vector<Tensor> unpack() override {
    std::vector<Tensor> tensors;
    for (const std::any& value : values_) tensors.push_back(unpack_value(value));
    return tensors;
  }

 private:
  std::vector<std::any> values_;
};

std::shared_ptr<OffloadStore> make_store(const OffloadOptions& options) {
  auto store = std::make_shared<OffloadStore>(options);
  stores().add(store);
  return store;
}

}  // namespace

OffloadScope::OffloadScope(const OffloadOptions& options) : store_(make_store(options)), scope_(hooks_of(store_)) {}
OffloadCounters OffloadScope::counters() const { return store_->counters(); }
void OffloadScope::wait() const { store_->wait(); }

OffloadPacker::OffloadPacker(const OffloadOptions& options) : store_(make_store(options)) {}
OffloadCounters OffloadPacker::counters() const { return store_->counters(); }

// A value goes from memory as soon as it is written, while the next one waits to be.
std::unique_ptr<PackedTensors> OffloadPacker::pack(std::vector<Tensor> values) {
  const uint64_t group = store_->new_group();
  std::vector<std::any> packed;
  for (Tensor& value : values) {
    packed.push_back(pack_value(*store_, value, nullptr, group));
    value = {};
  }
  return std::make_unique<Pieces>(std::move(packed));
}

namespace {

// Before bytes are overwritten: waits until those of them that wait to be written have been.
void finish_offload_of(const Tensor& value) {
  if (!stores().any || !value.storage()) return;
  for (const std::shared_ptr<OffloadStore>& store : stores().living()) store->wait_for(value.storage().get());
}

[[maybe_unused]] const bool kSet = set_before_write(finish_offload_of);

}  // namespace
}  // namespace stepnet::autograd
