#include "core/net/net_layout.h"

#include <algorithm>

#include "core/net/liveness.h"
#include "core/operator/in_place.h"

namespace stepnet {
namespace {

bool may_take_place(const NetStep& step, const StoredValue& output, const StoredValue& input) {
  if (input.last != output.first || input.last_written || input.last_inputs.empty()) return false;
  if (input.dtype != output.dtype || input.shape.size() != output.shape.size()) return false;
  return std::ranges::all_of(input.last_inputs,
                             [&](int i) { return may_write_over(*step.op->spec, i, output.output); });
}

// By value: the input whose place it takes. Each place is taken once.
std::vector<int> find_written_over(std::span<const NetStep> steps, std::span<const StoredValue> values) {
  std::vector<std::vector<int>> ends(steps.size());
  for (size_t v = 0; v < values.size(); ++v) ends[values[v].last].push_back(static_cast<int>(v));
  std::vector<int> over(values.size(), -1);
  std::vector<bool> taken(values.size(), false);
  for (size_t v = 0; v < values.size(); ++v) {
    const int s = values[v].first;
    const auto found = std::ranges::find_if(ends[s], [&](int e) {
      return !taken[e] && values[e].first < s && may_take_place(steps[s], values[v], values[e]);
    });
    if (found == ends[s].end()) continue;
    over[v] = *found;
    taken[*found] = true;
  }
  return over;
}

Lifetime lifetime_of(const StoredValue& v) { return {byte_size(v.dtype, v.shape), v.first, v.last}; }

// Values that are written over each other have one place.
NetLayout lay_out(std::span<const StoredValue> values, std::vector<int> over) {
  std::vector<int> place_of(values.size(), -1);
  std::vector<Lifetime> places;
  for (size_t v = 0; v < values.size(); ++v) {  // a value comes after those it is written over
    const Lifetime life = lifetime_of(values[v]);
    place_of[v] = over[v] >= 0 ? place_of[over[v]] : static_cast<int>(places.size());
    if (over[v] >= 0)
      places[place_of[v]].last = life.last;
    else
      places.push_back(life);
  }
  constexpr int64_t kEffort = 10'000'000;  // a net is planned once for each set of input types
  const ArenaPlan plan = plan_arena(places, kEffort);
  NetLayout layout{.written_over = std::move(over), .bytes = plan.bytes, .most_alive = plan.most_alive};
  for (const int place : place_of) layout.offsets.push_back(plan.offsets[place]);
  return layout;
}

}  // namespace

NetLayout lay_out(std::span<const NetStep> steps, std::span<const StoredValue> values) {
  NetLayout best = lay_out(values, find_written_over(steps, values));
  if (best.bytes > best.most_alive) {
    // A place that many values take one after the other lives long, and may be hard to fit in.
    NetLayout other = lay_out(values, std::vector<int>(values.size(), -1));
    other.most_alive = std::min(other.most_alive, best.most_alive);
    if (other.bytes < best.bytes) best = std::move(other);
  }
  std::vector<Lifetime> all;
  for (const StoredValue& v : values) all.push_back(lifetime_of(v));
  best.apart = bytes_apart(all);
  return best;
}

}  // namespace stepnet
