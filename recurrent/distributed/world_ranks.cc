#include "recurrent/distributed/world_ranks.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "recurrent/distributed/batch_norms.h"
#include "recurrent/distributed/reductions.h"

namespace stepnet {
namespace {

const std::string kWorldBlob = "train/world";

class WorldRanks final : public Ranks {
 public:
  explicit WorldRanks(WorldPtr world) : world_(std::move(world)) {}

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  int ranks_here() const override { return world_->machine().ranks; }
  int cores_here() const override { return world_->machine().cores; }
  int place_here() const override { return world_->machine().place; }
  bool moves(Device device) const override { return world_->on(device) != nullptr; }

  std::vector<double> sum(std::vector<double> values) const override {
    const auto count = static_cast<int64_t>(values.size());
    wait(host().start_allreduce(values.data(), values.data(), count, DType::float64, ReduceOp::sum), values);
    return values;
  }

  void broadcast(Tensor& value) const override {
    World* there = world_->on(value.device());
    Tensor own = there ? value : on_device(value, {});
    if (!there) there = &host();
    const PendingPtr pending = there->start_broadcast(own.raw(), own.size(), own.dtype(), 0);
    pending->hold(own.storage());
    pending->wait();
    if (own.storage() != value.storage()) value.copy_from(own);
    value.mark_written();
  }

  void broadcast(Checkpoint& contents) const override {
    std::vector<std::uint8_t> bytes = nlohmann::json::to_msgpack(head_of(contents));
    std::vector<double> size = sum({is_first() ? static_cast<double>(bytes.size()) : 0});
    bytes.resize(static_cast<size_t>(size[0]));
    wait(host().start_broadcast(bytes.data(), static_cast<int64_t>(bytes.size()), DType::uint8, 0), bytes);
    if (!is_first()) contents = made_of(nlohmann::json::from_msgpack(bytes));
    for (auto& [name, tensor] : contents.tensors) broadcast(tensor);
  }

  Tensor gather(const Tensor& part) const override {
    const Tensor own = on_device(part, {});
    require(own.rank() >= 2 && own.dim(0) == 1, "what is gathered must be [1, B, ...], not {}", own);
    Tensor all = Tensor::empty(own.dtype(), own.shape().with(1, own.dim(1) * size()));
    const PendingPtr pending = host().start_allgather(own.raw(), all.raw(), own.size(), own.dtype());
    pending->hold(own.storage());
    pending->hold(all.storage());
    pending->wait();
    return all;
  }

  void collect(std::map<std::string, Tensor>& tensors) const override {
    constexpr int kTag = 3;  // others are those of a pipeline's messages
    if (is_first()) {
      for (int other = 1; other < size(); ++other) receive_all(other, kTag, tensors);
      return;
    }
    Checkpoint own;
    for (const auto& [name, value] : tensors) own.tensors[name] = on_device(value, {});
    std::vector<std::uint8_t> bytes = nlohmann::json::to_msgpack(head_of(own));
    std::vector<double> count = {static_cast<double>(bytes.size())};
    wait(world_->start_send(count.data(), 1, DType::float64, 0, kTag), count);
    const auto size = static_cast<int64_t>(bytes.size());
    wait(world_->start_send(bytes.data(), size, DType::uint8, 0, kTag), bytes);
    for (const auto& [name, value] : own.tensors) {
      const PendingPtr pending = world_->start_send(value.raw(), value.size(), value.dtype(), 0, kTag);
      pending->hold(value.storage());
      pending->wait();
    }
  }

  void enter(Workspace& workspace) const override { workspace.create_local(kWorldBlob).emplace<WorldPtr>(world_); }
  const std::string& blob() const override { return kWorldBlob; }

  void synchronize_batch_norms(NetDef& net, const std::string& share) const override {
    stepnet::synchronize_batch_norms(net, kWorldBlob, share);
  }
  void add_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients, DType move_as) const override {
    stepnet::add_reductions(net, gradients, {.world = kWorldBlob, .move_as = move_as});
  }
  std::vector<ParameterShard> add_sharded_reductions(NetDef& net, const std::vector<ReducedGradient>& gradients,
                                                     DType move_as) const override {
    return stepnet::add_sharded_reductions(net, gradients, size(), {.world = kWorldBlob, .move_as = move_as});
  }

 private:
  // What moves numbers of the CPU.
  World& host() const { return *world_->on(Device{}); }

  // The bytes stay where they are while this waits; after a failure MPI may still touch them, so they stay for good.
  template <class T>
  static void wait(const PendingPtr& pending, std::vector<T>& bytes) {
    try {
      pending->wait();
    } catch (...) {
      pending->hold(std::make_shared<std::vector<T>>(std::move(bytes)));
      throw;
    }
  }

  void receive_all(int other, int tag, std::map<std::string, Tensor>& tensors) const {
    std::vector<double> count(1);
    wait(world_->start_receive(count.data(), 1, DType::float64, other, tag), count);
    std::vector<std::uint8_t> bytes(static_cast<size_t>(count[0]));
    const auto size = static_cast<int64_t>(bytes.size());
    wait(world_->start_receive(bytes.data(), size, DType::uint8, other, tag), bytes);
    for (auto& [name, value] : made_of(nlohmann::json::from_msgpack(bytes)).tensors) {
      const PendingPtr pending = world_->start_receive(value.raw(), value.size(), value.dtype(), other, tag);
      pending->hold(value.storage());
      pending->wait();
      value.mark_written();
      const auto [own, is_new] = tensors.emplace(name, value);
      require(is_new || same_bits(on_device(own->second, {}), value), "rank {} has another \"{}\" than ranks before it",
              other, name);
    }
  }

  static bool same_bits(const Tensor& a, const Tensor& b) {
    return a.dtype() == b.dtype() && a.shape() == b.shape() &&
           (a.size() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
  }

  // Texts, and names, types and shapes of the tensors.
  static nlohmann::json head_of(const Checkpoint& contents) {
    nlohmann::json head;
    head["texts"] = contents.texts;
    head["tensors"] = nlohmann::json::array();
    for (const auto& [name, tensor] : contents.tensors)
      head["tensors"].push_back({name, static_cast<int>(tensor.dtype()),
                                 std::vector<int64_t>(tensor.shape().dims().begin(), tensor.shape().dims().end())});
    // What is no text, such as a vocabulary's bytes, goes as numbers.
    return binary(head);
  }

  static nlohmann::json binary(const nlohmann::json& head) {
    nlohmann::json made = head;
    for (auto& [name, text] : made["texts"].items()) {
      const auto& value = text.get_ref<const std::string&>();
      text = nlohmann::json::binary(std::vector<std::uint8_t>(value.begin(), value.end()));
    }
    return made;
  }

  static Checkpoint made_of(const nlohmann::json& head) {
    Checkpoint contents;
    for (const auto& [name, text] : head["texts"].items()) {
      const auto& value = text.get_binary();
      contents.texts[name] = std::string(value.begin(), value.end());
    }
    for (const auto& entry : head["tensors"])
      contents.tensors[entry[0].get<std::string>()] =
          Tensor::empty(static_cast<DType>(entry[1].get<int>()), Shape(entry[2].get<std::vector<int64_t>>()));
    return contents;
  }

  WorldPtr world_;
};

}  // namespace

RanksPtr ranks_of(WorldPtr world) {
  if (world->size() == 1) return nullptr;
  return std::make_shared<WorldRanks>(std::move(world));
}

}  // namespace stepnet
