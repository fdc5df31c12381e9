#include "core/passes/rerun_profile.h"

#include <algorithm>

namespace stepnet {

void add_between(std::vector<int64_t>& changes, int first, int last, int64_t bytes) {
  if (first > last) return;
  changes[first] += bytes;
  changes[last + 1] -= bytes;
}

namespace {

// The same, of points that are counted from `begin` to before `end`.
void add_within(std::vector<int64_t>& changes, int begin, int end, int first, int last, int64_t bytes) {
  add_between(changes, std::max(first, begin) - begin, std::min(last, end - 1) - begin, bytes);
}

int64_t largest_sum(const std::vector<int64_t>& changes) {
  int64_t sum = 0, most = 0;
  for (const int64_t change : changes) most = std::max(most, sum += change);
  return most;
}

}  // namespace

SegmentProfile::SegmentProfile(const MemoryValues& net, const Segment& segment, const Rerun& rerun,
                               const std::vector<int>& crossing)
    : net_(net),
      segment_(segment),
      rerun_(rerun),
      sources_(net.flow.values().size()),
      kept_(net.flow.storages().size()),
      crossing_(net.flow.storages().size()),
      fresh_(net.flow.storages().size()) {
  find_fresh();
  hold_kept();
  find_crossing(crossing);
}

int64_t SegmentProfile::kept() const {
  int64_t bytes = 0;
  for (const auto& [storage, held] : kept_) bytes += held.bytes;
  return bytes;
}

// Of what segments before keep, all is counted as kept: what of that is in the forward part's own count, and what is
// not needed any more, is taken off.
void SegmentProfile::find_crossing(const std::vector<int>& crossing) {
  for (const int value : crossing) {
    const NetValue& v = net_.value(value);
    if (net_.is_lasting(value) || !net_.is_read_backward(value)) continue;
    const bool is_known = v.readers.front() >= segment_.begin && !crossing_.find(v.storage);
    Held& held = crossing_.get(v.storage);
    held = held_storage(v.storage);
    held.last = is_known ? net_.last_use(value) : NetValue::kNever;
    if (const Held* source = sources_.find(value)) held = longer(held, *source);
  }
}

int64_t SegmentProfile::forward_peak(const std::vector<int64_t>& live) const {
  const int begin = segment_.begin, end = segment_.end;
  std::vector<int64_t> changes(end - begin + 1);
  int64_t before = 0;
  for (int i = begin; i < end; before = live[i++]) changes[i - begin] += live[i] - before;
  for (const auto& [storage, held] : kept_)
    add_within(changes, begin, end, std::max(held.first, held.last_forward + 1), end, held.bytes);
  for (const auto& [storage, held] : crossing_) add_within(changes, begin, end, begin, held.last_forward, -held.bytes);
  return largest_sum(changes);
}

int64_t SegmentProfile::backward_peak(const std::vector<int64_t>& live, int begin, int end) const {
  if (begin >= end) return 0;
  std::vector<int64_t> changes(end - begin + 1);
  int64_t before = 0;
  for (int i = begin; i < end; before = live[i++]) changes[i - begin] += live[i] - before;
  for (const auto& [storage, held] : kept_) add_within(changes, begin, end, begin, held.last, held.bytes);
  for (const auto& [storage, held] : crossing_)
    if (held.last < end) add_within(changes, begin, end, held.last + 1, end, -held.bytes);
  for (const auto& [storage, fresh] : fresh_)
    add_within(changes, begin, end, rerun_.before, fresh.last_backward, fresh.bytes);
  return largest_sum(changes);
}

int64_t SegmentProfile::rerun_peak(int64_t live) const {
  const int size = static_cast<int>(rerun_.ops.size());
  std::vector<int64_t> changes(size + 1);
  changes[0] = live;
  const auto last = [&](const Held& held) { return held.last >= rerun_.before ? size : held.last_again; };
  for (const auto& [storage, held] : kept_) add_within(changes, 0, size, 0, last(held), held.bytes);
  for (const auto& [storage, held] : crossing_) add_within(changes, 0, size, last(held) + 1, size, -held.bytes);
  for (const auto& [storage, fresh] : fresh_) add_within(changes, 0, size, fresh.first, fresh.last, fresh.bytes);
  return largest_sum(changes);
}

SegmentProfile::Held SegmentProfile::held_storage(int storage) const {
  const ValueStorage& s = net_.storage(storage);
  return {s.bytes, s.first, net_.last_forward[storage], -1};
}

SegmentProfile::Held SegmentProfile::longer(Held held, const Held& other) {
  held.last = std::max(held.last, other.last);
  held.last_again = std::max(held.last_again, other.last_again);
  return held;
}

void SegmentProfile::hold(int value, const Held& time) {
  if (net_.is_lasting(value)) return;
  const int storage = net_.value(value).storage;
  Held& held = kept_.get(storage, held_storage(storage));
  held = longer(held, time);
}

bool SegmentProfile::runs_again(int op) const { return std::ranges::binary_search(rerun_.ops, op); }

void SegmentProfile::find_fresh() {
  for (const int source : rerun_.sources) sources_.get(source).last = rerun_.before - 1;
  for (size_t at = 0; at < rerun_.ops.size(); ++at) {
    const int op = rerun_.ops[at];
    for (const int value : net_.flow.reads(op)) extend(value, static_cast<int>(at));
    for (size_t o = 0; o < net_.flow.outputs(op).size(); ++o) {
      const int value = net_.flow.made(op, static_cast<int>(o));
      if (value < 0) continue;
      const bool is_read = std::ranges::binary_search(rerun_.dropped, value);
      if (net_.value(value).alias_of >= 0) {
        if (is_read) extend_source(value);
        continue;
      }
      Fresh& fresh = fresh_.get(net_.value(value).storage, Fresh{.first = static_cast<int>(at)});
      fresh.bytes = std::max(fresh.bytes, net_.ops[op].out_bytes[o]);
      fresh.last = std::max(fresh.last, static_cast<int>(at));
      if (is_read) read_backward(fresh, value);
    }
  }
}

void SegmentProfile::read_backward(Fresh& fresh, int value) const {
  fresh.last = static_cast<int>(rerun_.ops.size());
  fresh.last_backward = std::max(fresh.last_backward, net_.value(value).readers.back());
}

void SegmentProfile::extend(int value, int at) {
  if (value < 0) return;
  const int root = root_of(value);
  if (Held* source = sources_.find(root)) {
    source->last_again = std::max(source->last_again, at);
  } else if (Fresh* fresh = fresh_.find(net_.value(value).storage)) {
    fresh->last = std::max(fresh->last, at);
  }
}

int SegmentProfile::root_of(int value) const {
  while (net_.value(value).alias_of >= 0 && runs_again(net_.value(value).writer)) value = net_.value(value).alias_of;
  return value;
}

void SegmentProfile::extend_source(int value) {
  const int root = root_of(value);
  if (Held* source = sources_.find(root)) {
    source->last = std::max(source->last, net_.value(value).readers.back());
  } else if (Fresh* fresh = fresh_.find(net_.value(root).storage)) {
    read_backward(*fresh, value);
  }
}

void SegmentProfile::hold_kept() {
  for (int i = segment_.begin; i < segment_.end; ++i)
    for (const int value : net_.flow.outputs(i))
      if (value >= 0 && net_.is_read_backward(value) && !std::ranges::binary_search(rerun_.dropped, value))
        hold(value, Held{.last = net_.last_use(value)});
  for (const auto& [source, time] : sources_) {
    // Segments before keep what the backward part reads.
    const bool is_kept_before = net_.is_read_backward(source) && net_.value(source).writer < segment_.begin;
    if (!is_kept_before) hold(source, time);
  }
}

}  // namespace stepnet
