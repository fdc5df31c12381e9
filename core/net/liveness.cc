#include "core/net/liveness.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <random>
#include <set>

#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr size_t kMany = 4096;  // values; for more, orders in quadratic time take too long

bool needs_place(const Lifetime& v) { return v.bytes > 0 && v.first <= v.last; }

bool live_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

double size_of(const Lifetime& v) { return static_cast<double>(v.bytes); }
double duration_of(const Lifetime& v) { return static_cast<double>(v.last) - v.first + 1; }
double area_of(const Lifetime& v) { return size_of(v) * duration_of(v); }
double earliness_of(const Lifetime& v) { return -static_cast<double>(v.first); }
double lateness_of(const Lifetime& v) { return v.last; }

// Those that need a place, the largest key first; of equals, the larger value, and then the one that is given first.
std::vector<size_t> order_by(std::span<const Lifetime> values, double (*key)(const Lifetime&)) {
  std::vector<size_t> order;
  for (size_t i = 0; i < values.size(); ++i)
    if (needs_place(values[i])) order.push_back(i);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const double of_a = key(values[a]), of_b = key(values[b]);
    return of_a != of_b ? of_a > of_b : values[a].bytes > values[b].bytes;
  });
  return order;
}

ArenaPlan place_in(const std::vector<size_t>& order, std::span<const Lifetime> values) {
  ArenaPlan plan;
  plan.offsets.resize(values.size(), 0);
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    const int64_t size = allocated_bytes(values[i].bytes);
    int64_t at = 0;
    for (const size_t other : placed) {
      if (!live_together(values[i], values[other])) continue;
      if (at + size <= plan.offsets[other]) break;
      at = std::max(at, plan.offsets[other] + allocated_bytes(values[other].bytes));
    }
    plan.offsets[i] = at;
    plan.bytes = std::max(plan.bytes, at + size);
    placed.insert(std::ranges::upper_bound(placed, at, {}, [&](size_t p) { return plan.offsets[p]; }), i);
  }
  return plan;
}

// Tries other orders: the value that ends highest comes earlier, at a place that is drawn, and what is worse is mostly
// taken back. The draws are the same in every run.
void search_on(std::vector<size_t> order, std::span<const Lifetime> values, int64_t trials, int64_t least,
               ArenaPlan& best) {
  std::minstd_rand draws;
  ArenaPlan plan = place_in(order, values);
  for (int64_t trial = 0; trial < trials && best.bytes > least; ++trial) {
    const auto end = [&](size_t v) { return plan.offsets[v] + allocated_bytes(values[v].bytes); };
    const auto top = std::ranges::max_element(order, {}, end) - order.begin();
    std::vector<size_t> other = order;
    const auto to = top > 0 ? static_cast<int64_t>(draws() % static_cast<uint64_t>(top)) : 0;
    std::rotate(other.begin() + to, other.begin() + top, other.begin() + top + 1);
    ArenaPlan tried = place_in(other, values);
    if (tried.bytes > plan.bytes && trial % 4 != 0) continue;
    plan = std::move(tried);
    order = std::move(other);
    if (plan.bytes < best.bytes) best = plan;
  }
}

// The bytes of an arena that nobody has at the present point of time. Gaps that touch are one.
class Gaps {
 public:
  // The smallest gap that is large enough, the lowest of equals; if there is none, the arena grows.
  int64_t take(int64_t size) {
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit != by_size_.end()) {
      const auto [have, at] = *fit;
      remove(at, have);
      if (have > size) add(at + size, have - size);
      return at;
    }
    int64_t at = end_;
    if (!by_place_.empty()) {
      if (const auto [last, have] = *by_place_.rbegin(); last + have == end_) {
        remove(last, have);
        at = last;
      }
    }
    end_ = at + size;
    return at;
  }
  void give_back(int64_t at, int64_t size) {
    const auto next = by_place_.lower_bound(at);
    if (next != by_place_.begin()) {
      if (const auto [before, have] = *std::prev(next); before + have == at) {
        remove(before, have);
        at = before;
        size += have;
      }
    }
    if (const auto after = by_place_.find(at + size); after != by_place_.end()) {
      const int64_t have = after->second;
      remove(at + size, have);
      size += have;
    }
    add(at, size);
  }
  int64_t end() const { return end_; }

 private:
  void add(int64_t at, int64_t size) {
    by_place_[at] = size;
    by_size_.emplace(size, at);
  }
  void remove(int64_t at, int64_t size) {
    by_place_.erase(at);
    by_size_.erase({size, at});
  }

  std::map<int64_t, int64_t> by_place_;  // sizes
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t end_ = 0;
};

// Each value takes its bytes when it begins to be alive, and gives them back when it ends.
ArenaPlan place_by_time(std::span<const Lifetime> values) {
  ArenaPlan plan;
  plan.offsets.resize(values.size(), 0);
  Gaps gaps;
  using Ending = std::pair<int, size_t>;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> alive;
  for (const size_t i : order_by(values, earliness_of)) {
    for (; !alive.empty() && alive.top().first < values[i].first; alive.pop()) {
      const size_t ended = alive.top().second;
      gaps.give_back(plan.offsets[ended], allocated_bytes(values[ended].bytes));
    }
    plan.offsets[i] = gaps.take(allocated_bytes(values[i].bytes));
    alive.emplace(values[i].last, i);
  }
  plan.bytes = gaps.end();
  return plan;
}

int64_t most_alive(std::span<const Lifetime> values) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // at a point; what ends does so before the next point
  for (const Lifetime& v : values) {
    if (!needs_place(v)) continue;
    changes.emplace_back(v.first, allocated_bytes(v.bytes));
    changes.emplace_back(int64_t{v.last} + 1, -allocated_bytes(v.bytes));
  }
  std::ranges::sort(changes);
  int64_t alive = 0, most = 0;
  for (const auto& [point, bytes] : changes) most = std::max(most, alive += bytes);
  return most;
}

}  // namespace

void use_at(Lifetime& value, int point) {
  const bool is_first = value.last < value.first;
  value.first = is_first ? point : std::min(value.first, point);
  value.last = is_first ? point : std::max(value.last, point);
}

int64_t bytes_apart(std::span<const Lifetime> values) {
  int64_t total = 0;
  for (const Lifetime& v : values) {
    if (!needs_place(v)) continue;
    if (v.bytes > std::numeric_limits<int64_t>::max() - allocated_bytes(1) ||
        __builtin_add_overflow(total, allocated_bytes(v.bytes), &total))
      fail("{} values together have more bytes than 64 bits can count", values.size());
  }
  return total;
}

ArenaPlan plan_arena(std::span<const Lifetime> values, int64_t effort) {
  bytes_apart(values);  // no sum below is larger
  const int64_t least = most_alive(values);
  if (values.size() > kMany) {
    ArenaPlan plan = place_by_time(values);
    plan.most_alive = least;
    return plan;
  }
  ArenaPlan best;
  best.bytes = std::numeric_limits<int64_t>::max();
  for (const auto key : {size_of, duration_of, area_of, earliness_of, lateness_of}) {
    if (best.bytes == least) break;
    ArenaPlan plan = place_in(order_by(values, key), values);
    if (plan.bytes < best.bytes) best = std::move(plan);
  }
  const auto count = static_cast<int64_t>(values.size());
  const int64_t trials = effort / std::max<int64_t>(1, count * count);
  for (const auto key : {lateness_of, earliness_of, duration_of})
    if (best.bytes > least) search_on(order_by(values, key), values, trials, least, best);
  best.most_alive = least;
  return best;
}

}  // namespace stepnet
