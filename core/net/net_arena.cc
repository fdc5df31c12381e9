#include "core/net/net_arena.h"

#include <algorithm>

#include "core/tensor/dry_device.h"
#include "stepnet/device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace stepnet {
namespace {

constexpr size_t kMostPlans = 16;  // for different types of inputs
constexpr int kObserved = 2;       // runs: in the first an operator also makes what it keeps for later ones

void mark_dead([[maybe_unused]] Tensor& bytes, [[maybe_unused]] bool dead) {
#if defined(__SANITIZE_ADDRESS__)
  if (dead)
    __asan_poison_memory_region(bytes.raw(), bytes.bytes());
  else
    __asan_unpoison_memory_region(bytes.raw(), bytes.bytes());
#endif
}

void drop_bytes(Blob& blob) {
  if (blob.is_tensor()) blob.tensor().drop_bytes();
}

std::vector<const BoundOp*> ops_of(std::span<const NetStep> steps) {
  std::vector<const BoundOp*> ops;
  for (const NetStep& step : steps) ops.push_back(step.op);
  return ops;
}

}  // namespace

// For one set of input types.
struct NetArena::Plan {
  Types types;
  std::vector<StoredValue> values;
  NetLayout layout;
  int observed = 0;              // runs
  bool fits = false;             // the block takes no more memory than values apart
  bool is_used = false;          // it fits, and values are in it
  std::vector<bool> stays = {};  // by value of the net: it stays until the next run, though it has no place

  // While the block is there:
  Tensor block;
  std::vector<Tensor> places;                  // by value: its bytes
  std::vector<std::vector<int>> starts, ends;  // by operator: values that it makes, and that nobody needs behind it
  std::vector<bool> goes_on;                   // by value: another is written over it

  void make_block(size_t steps);
  void drop_block();
};

// Each value has a storage of its own, so that its holders can be counted.
void NetArena::Plan::make_block(size_t steps) {
  if (block.defined()) return;
  block = Tensor::empty(DType::uint8, {layout.bytes});
  starts.assign(steps, {});
  ends.assign(steps, {});
  goes_on.assign(values.size(), false);
  for (size_t v = 0; v < values.size(); ++v) {
    const StoredValue& value = values[v];
    const auto size = static_cast<size_t>(byte_size(value.dtype, value.shape));
    std::byte* bytes = size > 0 ? block.raw() + layout.offsets[v] : nullptr;
    const auto storage = std::make_shared<Storage>(block.storage(), bytes, size);
    places.push_back(Tensor::view(storage, 0, value.dtype, value.shape));
    starts[value.first].push_back(static_cast<int>(v));
    ends[value.last].push_back(static_cast<int>(v));
    if (layout.written_over[v] >= 0) goes_on[layout.written_over[v]] = true;
  }
  mark_dead(block, true);
}

void NetArena::Plan::drop_block() {
  if (!block.defined()) return;
  mark_dead(block, false);
  places.clear();
  block = {};
}

NetArena::NetArena(std::vector<NetStep> steps, const Dataflow& flow)
    : steps_(std::move(steps)),
      values_(find_holdings(ops_of(steps_), flow)),
      blobs_(blobs_of(steps_, flow)),
      ends_(steps_.size()),
      stays_(values_.all.size(), false) {
  for (const int b : flow.from_outside()) from_outside_.push_back(blobs_[b]);
  for (size_t v = 0; v < values_.all.size(); ++v)
    if (!values_.all[v].is_visible) ends_[values_.all[v].last].push_back(static_cast<int>(v));
}

NetArena::~NetArena() {
  if (plan_) plan_->drop_block();
}

NetArena::Types NetArena::types() const {
  Types types;
  for (const Blob* blob : from_outside_) {
    if (blob->is_tensor())
      types.emplace_back(blob->tensor().dtype(), blob->tensor().shape());
    else
      types.emplace_back(DType::undefined, Shape{});
  }
  return types;
}

bool NetArena::types_are(const Types& types) const {
  for (size_t i = 0; i < types.size(); ++i) {
    const Blob& blob = *from_outside_[i];
    if (!blob.is_tensor()) {
      if (types[i].first != DType::undefined) return false;
    } else if (types[i].first != blob.tensor().dtype() || !(types[i].second == blob.tensor().shape())) {
      return false;
    }
  }
  return true;
}

void NetArena::start() {
  is_mistaken_ = false;
  observation_.reset();
  if (!plan_ || !types_are(plan_->types)) {
    let_go();
    const auto found = std::ranges::find_if(plans_, [&](const auto& plan) { return types_are(plan->types); });
    plan_ = found == plans_.end() ? nullptr : found->get();
  }
  in_block_ = plan_ && plan_->is_used;
  if (in_block_) {
    plan_->make_block(steps_.size());
  } else if (!plan_ || plan_->observed < kObserved) {
    types_at_start_ = types();  // the run may change them
    observation_ = std::make_unique<NetObservation>(steps_, values_, blobs_, apart_);
  }
}

void NetArena::before(size_t step) {
  if (observation_) observation_->begin();
  if (!in_block_) return;
  for (const int v : plan_->starts[step]) {
    mark_dead(plan_->places[v], false);
    steps_[step].out[plan_->values[v].output]->tensor() = plan_->places[v];
  }
}

void NetArena::after(size_t step) {
  const int s = static_cast<int>(step);
  if (observation_) observation_->see(s);
  if (in_block_) check_made(s);
  for (const int v : ends_[step]) {
    if (observation_ && observation_->is_held(v)) stays_[v] = true;
    if (!stays_[v] && !(in_block_ && plan_->stays[v])) drop_bytes(*blobs_[values_.all[v].blob]);
    if (observation_) observation_->see_end(s, v);
  }
  if (in_block_) check_ended(s);
}

// A kernel may have given its output another type, and so other bytes, than in the observed run.
void NetArena::check_made(int s) {
  for (const int v : plan_->starts[s]) {
    const Blob& blob = *steps_[s].out[plan_->values[v].output];
    const Tensor& place = plan_->places[v];
    const bool is_there = blob.is_tensor() && blob.tensor().shares_storage(place) &&
                          blob.tensor().dtype() == place.dtype() && blob.tensor().shape() == place.shape();
    if (is_there) continue;
    apart_.insert({s, plan_->values[v].output});
    is_mistaken_ = true;
  }
}

void NetArena::check_ended(int s) {
  for (const int v : plan_->ends[s]) {
    if (plan_->places[v].storage().use_count() == 1) {
      if (!plan_->goes_on[v]) mark_dead(plan_->places[v], true);
      continue;
    }
    apart_.insert({plan_->values[v].first, plan_->values[v].output});
    is_mistaken_ = true;
    in_block_ = false;
  }
}

void NetArena::make_plan() {
  if (!plan_) {
    if (plans_.size() == kMostPlans) plans_.erase(plans_.begin());
    plan_ = plans_.emplace_back(std::make_unique<Plan>()).get();
    plan_->types = types_at_start_;
  }
  plan_->values = observation_->movable();
  plan_->layout = lay_out(steps_, plan_->values);
  plan_->stays.assign(values_.all.size(), false);
  if (++plan_->observed < kObserved) return;
  const int64_t most = observation_->most_live(), block = plan_->layout.bytes;
  plan_->fits = !plan_->values.empty() && observation_->most_live(plan_->values, block) <= most;
  // A dry run stays with the observed one, which takes the most: places in a block have no identity of their own there.
  plan_->is_used = plan_->fits && !DryScope::now();
  // From now on the block is asked for in place of what these runs have left behind.
  if (plan_->is_used) give_back_free_memory();
  const std::vector<StoredValue> staying = observation_->stayable();
  // A thousandth more is worth it that a run allocates nothing.
  const int64_t with_staying = observation_->most_live(plan_->values, block, staying);
  if (!plan_->is_used || with_staying > most + most / 1000) return;
  for (const StoredValue& v : staying) plan_->stays[values_.made[v.first][v.output]] = true;
}

void NetArena::finish() {
  if (observation_) make_plan();
  observation_.reset();
  if (is_mistaken_) {
    let_go();
    std::erase_if(plans_, [&](const auto& plan) { return plan.get() == plan_; });
    plan_ = nullptr;
  }
}

void NetArena::stop() noexcept {
  observation_.reset();
  if (!plan_ || !plan_->is_used) return;
  for (const Holding& value : values_.all)
    if (!value.is_visible) drop_bytes(*blobs_[value.blob]);
}

void NetArena::let_go() {
  if (!plan_) return;
  plan_->drop_block();
  for (size_t v = 0; v < plan_->stays.size(); ++v)
    if (plan_->stays[v]) drop_bytes(*blobs_[values_.all[v].blob]);
}

NetMemory NetArena::memory() const {
  NetMemory m;
  if (!plan_) return m;
  m.planned = plan_->fits;
  m.values = static_cast<int64_t>(plan_->values.size());
  m.written_over = m.values - std::ranges::count(plan_->layout.written_over, -1);
  m.apart = plan_->layout.apart;
  m.most_alive = plan_->layout.most_alive;
  m.block = plan_->layout.bytes;
  return m;
}

}  // namespace stepnet
