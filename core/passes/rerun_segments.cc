#include "core/passes/rerun_segments.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/passes/rerun_profile.h"

namespace stepnet {
namespace {

// A value of a segment that the backward part reads, and that stays even if the segment runs again.
bool stays(const MemoryValues& net, int value, int end) {
  return net.ops[net.value(value).writer].fixed || net.by_name[value] || net.is_read_forward_from(value, end);
}

bool is_made_again(const MemoryValues& net, int value, int begin, int end) {
  const int writer = net.value(value).writer;
  if (writer < begin || writer >= end || net.is_lasting(value) || net.ops[writer].fixed) return false;
  return !net.is_read_backward(value) || !stays(net, value, end);
}

void sort_once(std::vector<int>& numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

void find_dropped(const MemoryValues& net, int begin, int end, Rerun& rerun) {
  rerun.before = NetValue::kNever;
  for (int i = begin; i < end; ++i)
    for (const int value : net.flow.outputs(i)) {
      if (value < 0 || !net.is_read_backward(value) || !is_made_again(net, value, begin, end)) continue;
      const std::vector<int>& readers = net.value(value).readers;
      rerun.before = std::min(rerun.before, *std::ranges::lower_bound(readers, net.forward));
      rerun.dropped.push_back(value);
    }
  sort_once(rerun.dropped);
}

}  // namespace

Rerun plan_rerun(const MemoryValues& net, int begin, int end) {
  Rerun rerun;
  find_dropped(net, begin, end, rerun);
  std::vector<int> open = rerun.dropped;
  std::vector<char> runs(end - begin, 0);
  while (!open.empty()) {
    const int writer = net.value(open.back()).writer;
    open.pop_back();
    if (runs[writer - begin]) continue;
    runs[writer - begin] = 1;
    rerun.ops.push_back(writer);
    for (const int input : net.flow.reads(writer)) {
      if (input < 0) continue;
      if (is_made_again(net, input, begin, end)) {
        open.push_back(input);
      } else if (net.value(input).overwritten < rerun.before) {
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

RerunCosts::RerunCosts(const MemoryValues& net)
    : net_(net), settled_(net.forward + 1, net.forward), crossing_(net.forward + 1) {
  const int size = static_cast<int>(net.ops.size());
  forward_live_.resize(size + 1);
  backward_live_.resize(size + 1);
  between_live_.resize(size + 1);
  for (size_t storage = 0; storage < net.last_forward.size(); ++storage) {
    const ValueStorage& s = net.storage(static_cast<int>(storage));
    if (s.lasting || s.first >= size) continue;
    if (s.first < net.forward) {
      add_between(forward_live_, s.first, net.last_forward[storage], s.bytes);
    } else {
      add_between(backward_live_, s.first, s.last, s.bytes);
      add_between(between_live_, s.first + 1, s.last, s.bytes);
    }
  }
  for (std::vector<int64_t>* live : {&forward_live_, &backward_live_, &between_live_})
    std::partial_sum(live->begin(), live->end(), live->begin());
  for (int id = 0; id < static_cast<int>(net.by_name.size()); ++id) {
    const int writer = net.value(id).writer;
    if (writer < 0 || writer >= net.forward || net.is_lasting(id)) continue;
    if (net.is_read_backward(id)) settled_[writer] = std::max(settled_[writer], net.last_use(id) + 1);
    for (int i = writer + 1; i < net.forward && net.is_read_forward_from(id, i); ++i) crossing_[i].push_back(id);
  }
  for (int i = net.forward - 1; i >= 0; --i) settled_[i] = std::max(settled_[i], settled_[i + 1]);
}

RerunCost RerunCosts::cost(const Segment& segment) const {
  RerunCost cost;
  const Rerun rerun = segment.again ? plan_rerun(net_, segment.begin, segment.end) : Rerun();
  const int begin = settled_[segment.end], end = settled_[segment.begin];
  cost.possible = !segment.again || (rerun.possible && rerun.before >= begin);
  if (!cost.possible) return cost;
  const SegmentProfile profile(net_, segment, rerun, crossing_[segment.begin]);
  cost.kept = profile.kept();
  cost.peak = std::max(profile.forward_peak(forward_live_), profile.backward_peak(backward_live_, begin, end));
  if (segment.again) cost.peak = std::max(cost.peak, profile.rerun_peak(between_live_[rerun.before]));
  for (const int op : rerun.ops) cost.flops += net_.ops[op].flops;
  return cost;
}

int64_t RerunCosts::peak_afterwards() const {
  return *std::max_element(backward_live_.begin() + settled_[0], backward_live_.end());
}

int64_t RerunCosts::crossing(int op) const {
  std::map<int, int64_t> storages;
  for (const int value : crossing_[op])
    storages[net_.value(value).storage] = net_.storage(net_.value(value).storage).bytes;
  int64_t bytes = 0;
  for (const auto& [storage, size] : storages) bytes += size;
  return bytes;
}

}  // namespace stepnet
