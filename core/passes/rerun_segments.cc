#include "core/passes/rerun_segments.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/passes/rerun_profile.h"

namespace stepnet {
namespace {

// A value of a segment that the backward part reads, and that stays even if the segment runs again.
bool stays(const MemoryValues& net, int value, int end) {
  const MemoryValue& v = net.values[value];
  return net.ops[v.writer].fixed || v.by_name || net.is_read_forward_from(value, end);
}

bool is_made_again(const MemoryValues& net, int value, int begin, int end) {
  const MemoryValue& v = net.values[value];
  if (v.writer < begin || v.writer >= end || net.is_lasting(value) || net.ops[v.writer].fixed) return false;
  return !net.is_read_backward(value) || !stays(net, value, end);
}

void sort_once(std::vector<int>& numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

void find_dropped(const MemoryValues& net, int begin, int end, Rerun& rerun) {
  rerun.before = MemoryValue::kNever;
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

Rerun plan_rerun(const MemoryValues& net, int begin, int end) {
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

RerunCosts::RerunCosts(const MemoryValues& net)
    : net_(net), settled_(net.forward + 1, net.forward), crossing_(net.forward + 1) {
  const int size = static_cast<int>(net.ops.size());
  forward_live_.resize(size + 1);
  backward_live_.resize(size + 1);
  between_live_.resize(size + 1);
  for (const MemoryStorage& s : net.storages) {
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
    const MemoryValue& v = net.values[value];
    const int id = static_cast<int>(value);
    if (v.writer < 0 || v.writer >= net.forward || net.is_lasting(id)) continue;
    if (net.is_read_backward(id)) settled_[v.writer] = std::max(settled_[v.writer], net.last_use(id) + 1);
    for (int i = v.writer + 1; i < net.forward && net.is_read_forward_from(id, i); ++i) crossing_[i].push_back(id);
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
  for (const int op : rerun.ops) cost.flops += net_.ops[op].sized.flops;
  return cost;
}

int64_t RerunCosts::peak_afterwards() const {
  return *std::max_element(backward_live_.begin() + settled_[0], backward_live_.end());
}

int64_t RerunCosts::crossing(int op) const {
  std::map<int, int64_t> storages;
  for (const int value : crossing_[op])
    storages[net_.values[value].storage] = net_.storages[net_.values[value].storage].bytes;
  int64_t bytes = 0;
  for (const auto& [storage, size] : storages) bytes += size;
  return bytes;
}

}  // namespace stepnet
