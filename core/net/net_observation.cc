#include "core/net/net_observation.h"

#include <algorithm>

#include "core/compute/threads.h"
#include "core/net/liveness.h"
#include "core/tensor/dry_device.h"
#include "stepnet/half.h"

namespace stepnet {
namespace {

const Tensor* stored_tensor(const Blob* blob) {
  const bool is_stored = blob && blob->is_tensor() && blob->tensor().storage();
  return is_stored ? &blob->tensor() : nullptr;
}

int64_t rounded_bytes(const StoredValue& v) { return allocated_bytes(byte_size(v.dtype, v.shape)); }

}  // namespace

NetObservation::NetObservation(std::span<const NetStep> steps, const Holdings& values, std::span<Blob* const> blobs,
                               const std::set<std::pair<int, int>>& apart)
    : steps_(steps), values_(values), blobs_(blobs), apart_(apart), stored_of_(values.all.size(), -1) {}

// A storage that is gone may have left its address to another.
int NetObservation::find(const Tensor& tensor) const {
  const auto at = by_address_.find(tensor.storage().get());
  if (at == by_address_.end()) return -1;
  const Stored& stored = stored_[at->second];
  return stored.alive && stored.storage.lock() == tensor.storage() ? at->second : -1;
}

int NetObservation::add(int step, int output, const Tensor& t) {
  Stored made;
  made.value.first = step;
  made.value.output = output;
  made.value.dtype = t.dtype();
  made.value.shape = t.shape();
  made.storage = t.storage();
  const bool is_whole = t.offset() == 0 && t.storage()->bytes() == t.bytes() && t.storage().use_count() == 1;
  const bool is_plain = t.dtype() != DType::string && t.device() == Device{};
  // An operator on blobs that runs dry looks at no element of what it makes, and resizes it as others do.
  const OpSpec& spec = *steps_[step].op->spec;
  const bool by_blobs = spec.blob_kernel && !spec.runs_dry;
  made.may_stay = is_whole && is_plain && by_blobs;
  made.apart = !is_whole || !is_plain || by_blobs || apart_.count({step, output}) > 0;
  stored_.push_back(std::move(made));
  const int added = static_cast<int>(stored_.size()) - 1;
  by_address_[t.storage().get()] = added;
  return added;
}

void NetObservation::begin() {
  before_ = memory_counters().live;
  peak_.restart();
}

// Threads that run steps of a network each cast for themselves; how much of that is there at a time differs from run to
// run, but no more than what one of them takes, for each.
NetObservation::Live NetObservation::live_at(int step) const {
  Live live;
  live.behind = live.most = live.bound = memory_counters().live;
  if (DryScope::now()) return live;
  live.most = live.bound = std::max(live.behind, peak_.peak());
  const NetStep& s = steps_[step];
  const auto is_in_half = [](const Blob* blob) {
    const Tensor* t = stored_tensor(blob);
    return t && is_half(t->dtype());
  };
  if (!s.op->spec->blob_kernel || serial_here()) return live;
  if (std::ranges::none_of(s.in, is_in_half) && std::ranges::none_of(s.out, is_in_half)) return live;
  live.bound += (threads() - 1) * (live.most - std::max(before_, live.behind));
  return live;
}

void NetObservation::see(int step) {
  live_.push_back(live_at(step));
  for (const int k : used_) {
    if (!stored_[k].alive) continue;
    stored_[k].value.last_inputs.clear();
    stored_[k].value.last_written = false;
  }
  used_.clear();
  for (size_t i = 0; i < steps_[step].in.size(); ++i)
    if (const Tensor* t = stored_tensor(steps_[step].in[i]))
      if (const int k = find(*t); k >= 0) {
        stored_[k].value.last_inputs.push_back(static_cast<int>(i));
        used_.push_back(k);
      }
  for (size_t o = 0; o < steps_[step].out.size(); ++o)
    if (const int v = values_.made[step][o]; v >= 0) see_output(step, static_cast<int>(o), v);
}

// An output shows bytes that are known already, under another name or in place, or new ones.
void NetObservation::see_output(int step, int output, int value) {
  const int before = stored_of_[value];
  const Tensor* t = stored_tensor(blobs_[values_.all[value].blob]);
  int now = t ? find(*t) : -1;
  if (t && now < 0) now = add(step, output, *t);
  if (now >= 0) {
    stored_[now].value.last_written = true;
    used_.push_back(now);
    if (values_.all[value].is_visible) keep_out(stored_[now]);
  }
  if (now == before) return;
  // An operator in place that has left its place: neither place is one that can be planned.
  if (before >= 0) {
    keep_out(stored_[before]);
    if (now >= 0) keep_out(stored_[now]);
    --stored_[before].names;
  }
  if (now >= 0) ++stored_[now].names;
  stored_of_[value] = now;
}

bool NetObservation::is_held(int value) const {
  const int k = stored_of_[value];
  return k >= 0 && stored_[k].storage.use_count() > stored_[k].names;
}

void NetObservation::see_end(int step, int value) {
  const int k = stored_of_[value];
  if (k < 0) return;
  Stored& stored = stored_[k];
  if (--stored.names > 0) return;
  stored.value.last = step;
  if (!stored.storage.expired()) keep_out(stored);  // somebody else holds it
  stored.alive = false;
}

std::vector<StoredValue> NetObservation::movable() const {
  std::vector<StoredValue> found;
  for (const Stored& s : stored_)
    if (!s.apart && s.names == 0) found.push_back(s.value);
  return found;
}

std::vector<StoredValue> NetObservation::stayable() const {
  std::vector<StoredValue> found;
  for (const Stored& s : stored_)
    if (s.may_stay && s.names == 0) found.push_back(s.value);
  return found;
}

int64_t NetObservation::most_live() const {
  int64_t most = 0;
  for (const Live& live : live_) most = std::max(most, live.most);
  return most;
}

// What an operator on blobs makes may be made behind its peak, which then counts with all of that.
int64_t NetObservation::most_live(std::span<const StoredValue> moved, int64_t block,
                                  std::span<const StoredValue> staying) const {
  std::vector<int64_t> change(live_.size() + 1), late(live_.size());  // from an operator on; at it alone
  const auto add = [&](const StoredValue& v, int64_t bytes) {
    change[v.first] += bytes;
    change[v.last + 1] -= bytes;
  };
  for (const StoredValue& v : moved) {
    add(v, -rounded_bytes(v));
    if (steps_[v.first].op->spec->blob_kernel && live_[v.first].most > live_[v.first].behind)
      late[v.first] += rounded_bytes(v);
  }
  for (const StoredValue& v : staying) {
    change[0] += rounded_bytes(v);
    add(v, -rounded_bytes(v));
  }
  int64_t most = 0, changed = 0;
  for (size_t s = 0; s < live_.size(); ++s) {
    changed += change[s];
    most = std::max({most, live_[s].behind + changed, live_[s].bound + changed + late[s]});
  }
  return most + block;
}

}  // namespace stepnet
