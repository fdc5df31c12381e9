#include "core/passes/segments.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace stepnet {
namespace {

// Adds bytes to all points from first to last.
void add_between(std::vector<int64_t>& changes, int first, int last, int64_t bytes) {
  if (first > last) return;
  changes[first] += bytes;
  changes[last + 1] -= bytes;
}

// The same, of points that are counted from `begin` to before `end`.
void add_within(std::vector<int64_t>& changes, int begin, int end, int first, int last, int64_t bytes) {
  add_between(changes, std::max(first, begin) - begin, std::min(last, end - 1) - begin, bytes);
}

int64_t largest_sum(const std::vector<int64_t>& changes) {
  int64_t sum = 0, most = 0;
  for (const int64_t change : changes) most = std::max(most, sum += change);
  return most;
}

int last_use(const NetValues& net, int value) {
  const NetValue& v = net.values[value];
  const int read = v.readers.empty() ? -1 : v.readers.back();
  return v.by_name ? std::max(read, net.storages[v.storage].last) : read;
}

// A value of a segment that the backward part reads, and that stays even if the segment runs again.
bool stays(const NetValues& net, int value, int end) {
  const NetValue& v = net.values[value];
  return net.ops[v.writer].fixed || v.by_name || net.is_read_forward_from(value, end);
}

bool is_made_again(const NetValues& net, int value, int begin, int end) {
  const NetValue& v = net.values[value];
  if (v.writer < begin || v.writer >= end || net.is_lasting(value) || net.ops[v.writer].fixed) return false;
  return !net.is_read_backward(value) || !stays(net, value, end);
}

// A storage that is there in the segment's time, by operators of the forward part and of the rest, and if it is not
// there until Rerun::before, by the last position in Rerun::ops that reads it.
struct Held {
  int64_t bytes = 0;
  int first = 0, last_forward = 0, last = -1, last_again = -1;
};

// A storage of the second run, by positions in Rerun::ops, and the last backward operator that reads it.
struct Fresh {
  int64_t bytes = 0;
  int first = 0, last = 0, last_backward = -1;
};

// A few values of many that have small numbers, in the order in which they came.
template <class T>
class Table {
 public:
  explicit Table(size_t keys) : places_(keys, -1) {}
  T* find(int key) { return places_[key] < 0 ? nullptr : &entries_[places_[key]].second; }
  T& get(int key, const T& first = {}) {
    if (places_[key] < 0) {
      places_[key] = static_cast<int>(entries_.size());
      entries_.emplace_back(key, first);
    }
    return entries_[places_[key]].second;
  }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<int> places_;
  std::vector<std::pair<int, T>> entries_;
};

class Profile {
 public:
  Profile(const NetValues& net, const Segment& segment, const Rerun& rerun)
      : net_(net),
        segment_(segment),
        rerun_(rerun),
        sources_(net.values.size()),
        kept_(net.storages.size()),
        crossing_(net.storages.size()),
        fresh_(net.storages.size()) {
    find_fresh();
    hold_kept();
  }

  int64_t kept() const {
    int64_t bytes = 0;
    for (const auto& [storage, held] : kept_) bytes += held.bytes;
    return bytes;
  }

  // Of what segments before keep, all is counted as kept: what of that is in the forward part's own count, and what is
  // not needed any more, is taken off.
  void find_crossing(const std::vector<int>& crossing) {
    for (const int value : crossing) {
      const NetValue& v = net_.values[value];
      if (net_.is_lasting(value) || !net_.is_read_backward(value)) continue;
      const bool is_known = v.readers.front() >= segment_.begin && !crossing_.find(v.storage);
      Held& held = crossing_.get(v.storage);
      held = held_storage(v.storage);
      held.last = is_known ? last_use(net_, value) : NetValue::kNever;
      if (const Held* source = sources_.find(value)) held = longer(held, *source);
    }
  }

  int64_t forward_peak(const std::vector<int64_t>& live) const {
    const int begin = segment_.begin, end = segment_.end;
    std::vector<int64_t> changes(end - begin + 1);
    int64_t before = 0;
    for (int i = begin; i < end; before = live[i++]) changes[i - begin] += live[i] - before;
    for (const auto& [storage, held] : kept_)
      add_within(changes, begin, end, std::max(held.first, held.last_forward + 1), end, held.bytes);
    for (const auto& [storage, held] : crossing_)
      add_within(changes, begin, end, begin, held.last_forward, -held.bytes);
    return largest_sum(changes);
  }

  int64_t backward_peak(const std::vector<int64_t>& live, int begin, int end) const {
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

  // `live`: bytes of the gradients that live while the segment runs again.
  int64_t rerun_peak(int64_t live) const {
    const int size = static_cast<int>(rerun_.ops.size());
    std::vector<int64_t> changes(size + 1);
    changes[0] = live;
    const auto last = [&](const Held& held) { return held.last >= rerun_.before ? size : held.last_again; };
    for (const auto& [storage, held] : kept_) add_within(changes, 0, size, 0, last(held), held.bytes);
    for (const auto& [storage, held] : crossing_) add_within(changes, 0, size, last(held) + 1, size, -held.bytes);
    for (const auto& [storage, fresh] : fresh_) add_within(changes, 0, size, fresh.first, fresh.last, fresh.bytes);
    return largest_sum(changes);
  }

 private:
  Held held_storage(int storage) const {
    const NetStorage& s = net_.storages[storage];
    return {s.bytes, s.first, s.last_forward, -1};
  }

  static Held longer(Held held, const Held& other) {
    held.last = std::max(held.last, other.last);
    held.last_again = std::max(held.last_again, other.last_again);
    return held;
  }

  void hold(int value, const Held& time) {
    if (net_.is_lasting(value)) return;
    const int storage = net_.values[value].storage;
    Held& held = kept_.get(storage, held_storage(storage));
    held = longer(held, time);
  }

  bool runs_again(int op) const { return std::ranges::binary_search(rerun_.ops, op); }

  void find_fresh() {
    for (const int source : rerun_.sources) sources_.get(source).last = rerun_.before - 1;
    for (size_t at = 0; at < rerun_.ops.size(); ++at) {
      const NetValues::Op& op = net_.ops[rerun_.ops[at]];
      for (const int value : op.inputs) extend(value, static_cast<int>(at));
      for (size_t o = 0; o < op.outputs.size(); ++o) {
        const int value = op.outputs[o];
        if (value < 0) continue;
        const bool is_read = std::ranges::binary_search(rerun_.dropped, value);
        if (net_.values[value].alias_of >= 0) {
          if (is_read) extend_source(value);
          continue;
        }
        Fresh& fresh = fresh_.get(net_.values[value].storage, Fresh{.first = static_cast<int>(at)});
        fresh.bytes = std::max(fresh.bytes, op.sized.out_bytes[o]);
        fresh.last = std::max(fresh.last, static_cast<int>(at));
        if (is_read) read_backward(fresh, value);
      }
    }
  }

  void read_backward(Fresh& fresh, int value) const {
    fresh.last = static_cast<int>(rerun_.ops.size());
    fresh.last_backward = std::max(fresh.last_backward, net_.values[value].readers.back());
  }

  void extend(int value, int at) {
    if (value < 0) return;
    const int root = root_of(value);
    if (Held* source = sources_.find(root)) {
      source->last_again = std::max(source->last_again, at);
    } else if (Fresh* fresh = fresh_.find(net_.values[value].storage)) {
      fresh->last = std::max(fresh->last, at);
    }
  }

  // What a name that is made again is a name of.
  int root_of(int value) const {
    while (net_.values[value].alias_of >= 0 && runs_again(net_.values[value].writer))
      value = net_.values[value].alias_of;
    return value;
  }

  void extend_source(int value) {
    const int root = root_of(value);
    if (Held* source = sources_.find(root)) {
      source->last = std::max(source->last, net_.values[value].readers.back());
    } else if (Fresh* fresh = fresh_.find(net_.values[root].storage)) {
      read_backward(*fresh, value);
    }
  }

  void hold_kept() {
    for (int i = segment_.begin; i < segment_.end; ++i)
      for (const int value : net_.ops[i].outputs)
        if (value >= 0 && net_.is_read_backward(value) && !std::ranges::binary_search(rerun_.dropped, value))
          hold(value, Held{.last = last_use(net_, value)});
    for (const auto& [source, time] : sources_) {
      // Segments before keep what the backward part reads.
      const bool is_kept_before = net_.is_read_backward(source) && net_.values[source].writer < segment_.begin;
      if (!is_kept_before) hold(source, time);
    }
  }

  const NetValues& net_;
  const Segment& segment_;
  const Rerun& rerun_;
  Table<Held> sources_;   // by value: how long it stays for the second run
  Table<Held> kept_;      // by storage: what stays because of this segment
  Table<Held> crossing_;  // by storage: what stays because of segments before, and is read here
  Table<Fresh> fresh_;    // by storage that it stands in for
};

}  // namespace

namespace {

void sort_once(std::vector<int>& numbers) {
  std::ranges::sort(numbers);
  const auto rest = std::ranges::unique(numbers);
  numbers.erase(rest.begin(), rest.end());
}

void find_dropped(const NetValues& net, int begin, int end, Rerun& rerun) {
  rerun.before = NetValue::kNever;
  for (int i = begin; i < end; ++i)
    for (const int value : net.ops[i].outputs) {
      if (value < 0 || !net.is_read_backward(value) || !is_made_again(net, value, begin, end)) continue;
      const std::vector<int>& readers = net.values[value].readers;
      rerun.before = std::min(rerun.before, *std::ranges::lower_bound(readers, net.forward));
      rerun.dropped.push_back(value);
    }
  sort_once(rerun.dropped);
}

}  // namespace

Rerun plan_rerun(const NetValues& net, int begin, int end) {
  Rerun rerun;
  find_dropped(net, begin, end, rerun);
  std::vector<int> open = rerun.dropped;
  std::vector<char> runs(end - begin, 0);
  while (!open.empty()) {
    const int writer = net.values[open.back()].writer;
    open.pop_back();
    if (runs[writer - begin]) continue;
    runs[writer - begin] = 1;
    rerun.ops.push_back(writer);
    for (const int input : net.ops[writer].inputs) {
      if (input < 0) continue;
      if (is_made_again(net, input, begin, end)) {
        open.push_back(input);
      } else if (net.values[input].overwritten < rerun.before) {
        return rerun;
      } else {
        rerun.sources.push_back(input);
      }
    }
  }
  std::ranges::sort(rerun.ops);
  sort_once(rerun.sources);
  rerun.possible = !rerun.dropped.empty();
  return rerun;
}

SegmentCosts::SegmentCosts(const NetValues& net)
    : net_(net), settled_(net.forward + 1, net.forward), crossing_(net.forward + 1) {
  const int size = static_cast<int>(net.ops.size());
  forward_live_.resize(size + 1);
  backward_live_.resize(size + 1);
  between_live_.resize(size + 1);
  for (const NetStorage& s : net.storages) {
    if (s.lasting || s.first >= size) continue;
    if (s.first < net.forward) {
      add_between(forward_live_, s.first, s.last_forward, s.bytes);
    } else {
      add_between(backward_live_, s.first, s.last, s.bytes);
      add_between(between_live_, s.first + 1, s.last, s.bytes);
    }
  }
  for (std::vector<int64_t>* live : {&forward_live_, &backward_live_, &between_live_})
    std::partial_sum(live->begin(), live->end(), live->begin());
  for (size_t value = 0; value < net.values.size(); ++value) {
    const NetValue& v = net.values[value];
    const int id = static_cast<int>(value);
    if (v.writer < 0 || v.writer >= net.forward || net.is_lasting(id)) continue;
    if (net.is_read_backward(id)) settled_[v.writer] = std::max(settled_[v.writer], last_use(net, id) + 1);
    for (int i = v.writer + 1; i < net.forward && net.is_read_forward_from(id, i); ++i) crossing_[i].push_back(id);
  }
  for (int i = net.forward - 1; i >= 0; --i) settled_[i] = std::max(settled_[i], settled_[i + 1]);
}

SegmentCost SegmentCosts::cost(const Segment& segment) const {
  SegmentCost cost;
  const Rerun rerun = segment.again ? plan_rerun(net_, segment.begin, segment.end) : Rerun();
  const int begin = settled_[segment.end], end = settled_[segment.begin];
  cost.possible = !segment.again || (rerun.possible && rerun.before >= begin);
  if (!cost.possible) return cost;
  Profile profile(net_, segment, rerun);
  profile.find_crossing(crossing_[segment.begin]);
  cost.kept = profile.kept();
  cost.peak = std::max(profile.forward_peak(forward_live_), profile.backward_peak(backward_live_, begin, end));
  if (segment.again) cost.peak = std::max(cost.peak, profile.rerun_peak(between_live_[rerun.before]));
  for (const int op : rerun.ops) cost.flops += net_.ops[op].sized.flops;
  return cost;
}

int64_t SegmentCosts::peak_afterwards() const {
  return *std::max_element(backward_live_.begin() + settled_[0], backward_live_.end());
}

int64_t SegmentCosts::crossing(int op) const {
  std::map<int, int64_t> storages;
  for (const int value : crossing_[op])
    storages[net_.values[value].storage] = net_.storages[net_.values[value].storage].bytes;
  int64_t bytes = 0;
  for (const auto& [storage, size] : storages) bytes += size;
  return bytes;
}

}  // namespace stepnet
