// Segments of rows that stand one after the other, as kernels see them: where each begins, from lengths on the device.
//
//   const Tensor starts = gpu::segment_starts(call, lengths, {.places = rows});
//   const gpu::Segments segments(starts, rows);
//   gpu::each(call, dx.size, [=] __device__(size_t i) { const int64_t s = segments.of(i / row); ...
//
// A wrong length is noted, and counts as 0; lengths that do not add up to the places there are are noted, too, and no
// segment goes beyond these. Threads: as gpu/runtime/launch.h.
#pragma once

#include <bit>
#include <limits>

#include "gpu/loops/scalar.h"
#include "gpu/loops/temporary.h"

namespace stepnet::gpu {

constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

struct SegmentRules {
  int64_t places = kAnyNumber;   // that the lengths add up to
  int64_t longest = kAnyNumber;  // allowed
  int64_t kept = kAnyNumber;     // a longer one counts as this
};

// Of segments that were given their starts, [count + 1], by segment_starts.
struct Segments {
  const int64_t* starts = nullptr;
  int64_t count = 0, places = 0;

  Segments(const Tensor& made, int64_t of_places)
      : starts(reinterpret_cast<const int64_t*>(made.raw())), count(made.size() - 1), places(of_places) {}
  __device__ int64_t first(int64_t s) const { return starts[s]; }
  __device__ int64_t length(int64_t s) const { return starts[s + 1] - starts[s]; }
  // The segment that has the place, `count` if none has, where each has `more` places more than its length.
  __device__ int64_t of(int64_t place, int64_t more = 0) const {
    int64_t low = 0, high = count;  // starts[low] is at most the place
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (starts[middle] + middle * more <= place)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
};

// The row of a table at a place: the place itself, or what indices have there; -1 for an index that is outside, which
// is noted.
struct PlaceRows {
  const int32_t* narrow = nullptr;
  const int64_t* wide = nullptr;
  int64_t rows = 0;
  Bounds bounds;

  PlaceRows(const Call& call, const Tensor* indices, int64_t table)
      : rows(table), bounds(gpu::bounds(call, "an index")) {
    if (!indices) return;
    if (indices->dtype() == DType::int32)
      narrow = in_span<int32_t>(*indices).data;
    else
      wide = in_span<int64_t>(*indices).data;
  }
  __device__ int64_t at(int64_t place) const {
    const int64_t row = narrow ? narrow[place] : wide ? wide[place] : place;
    return bounds.inside(row, rows) ? row : -1;
  }
};

// Lengths are added up in parts, of which each has a team.
constexpr int64_t kLengthsOfPart = 4096;

// The sum of numbers that are not negative, which stops before it overflows; the order does not matter.
struct SumOfLengths {
  __host__ __device__ int64_t operator()(int64_t a, int64_t b) const { return a > kAnyNumber - b ? kAnyNumber : a + b; }
};

struct CheckedLengths {
  Indices values;
  SegmentRules rules;
  Bounds bounds, too_many, too_few;

  __device__ int64_t operator[](int64_t i) const {
    const int64_t length = values[i];
    const bool fits = bounds.inside(length, rules.longest < kAnyNumber ? rules.longest + 1 : kAnyNumber);
    return !fits ? 0 : length < rules.kept ? length : rules.kept;
  }
  __device__ int64_t inside_places(int64_t sum) const { return sum < rules.places ? sum : rules.places; }
  __device__ void check_sum(int64_t sum) const {
    if (rules.places == kAnyNumber || sum == rules.places) return;
    if (sum > rules.places)
      too_many.report(sum, rules.places + 1);
    else
      too_few.report(rules.places - sum, 1);
  }
};

// On each thread the sum of what the threads before it have.
__device__ inline int64_t sum_before(const Team& team, int64_t value) {
  int64_t *now = reinterpret_cast<int64_t*>(team.room), *next = now + Team::size;
  team.sync();
  now[team.thread] = value;
  for (unsigned back = 1; back < Team::size; back *= 2) {
    team.sync();
    const int64_t before = team.thread >= back ? now[team.thread - back] : 0;
    next[team.thread] = SumOfLengths()(now[team.thread], before);
    int64_t* written = next;
    next = now;
    now = written;
  }
  team.sync();
  return team.thread > 0 ? now[team.thread - 1] : 0;
}

// One segment of all places.
inline Tensor single_start(const Call& call, int64_t places) {
  Tensor starts = workspace(call, DType::int64, {2});
  const Out<int64_t> to = out_span<int64_t>(starts);
  each(call, 2, [=] __device__(size_t i) { to[i] = i == 0 ? 0 : places; });
  return starts;
}

// The sum of each part's lengths.
inline void add_up_parts(const Call& call, const CheckedLengths& lengths, Out<int64_t> sums) {
  const int64_t count = lengths.values.size;
  each_team(call, sums.size, [=] __device__(size_t part, const Team& team) {
    const int64_t begin = static_cast<int64_t>(part) * kLengthsOfPart;
    int64_t sum = 0;
    for (int64_t i = begin + team.thread; i < begin + kLengthsOfPart && i < count; i += Team::size)
      sum = SumOfLengths()(sum, lengths[i]);
    sum = team.reduce(sum, SumOfLengths());
    if (team.thread == 0) sums[part] = sum;
  });
}

// From the parts' sums the starts: each thread has some neighbours of its own.
inline void write_starts(const Call& call, const CheckedLengths& lengths, Out<int64_t> sums, Out<int64_t> starts) {
  const int64_t count = lengths.values.size;
  each_team(call, sums.size, [=] __device__(size_t part, const Team& team) {
    int64_t before = 0;
    for (size_t p = team.thread; p < part; p += Team::size) before = SumOfLengths()(before, sums[p]);
    before = team.reduce(before, SumOfLengths());
    constexpr int64_t mine = kLengthsOfPart / Team::size;
    const int64_t begin = static_cast<int64_t>(part) * kLengthsOfPart + team.thread * mine;
    const int64_t end = begin + mine < count ? begin + mine : count;
    int64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) sum = SumOfLengths()(sum, lengths[i]);
    sum = SumOfLengths()(before, sum_before(team, sum));
    for (int64_t i = begin; i < end; ++i) {
      starts[i] = lengths.inside_places(sum);
      sum = SumOfLengths()(sum, lengths[i]);
    }
    const bool last = count > 0 ? begin < count && end == count : begin == 0;
    if (!last) return;
    lengths.check_sum(sum);
    starts[count] = lengths.inside_places(sum);
  });
}

// Where each segment begins and, last, where the last one ends: [N + 1], int64.
inline Tensor segment_starts(const Call& call, const Tensor& lengths, const SegmentRules& rules) {
  const CheckedLengths checked{Indices(lengths), rules, bounds(call, "a length"),
                               bounds(call, "the sum of the lengths"),
                               bounds(call, "the number of rows behind the last segment")};
  const int64_t parts = std::max<int64_t>(1, (lengths.size() - 1) / kLengthsOfPart + 1);
  Tensor starts = workspace(call, DType::int64, {lengths.size() + 1});
  Tensor sums = workspace(call, DType::int64, {parts});
  if (parts > 1) add_up_parts(call, checked, out_span<int64_t>(sums));
  write_starts(call, checked, out_span<int64_t>(sums), out_span<int64_t>(starts));
  return starts;
}

// For each segment s and each of the `row` columns j: store(s, j, op over value(k, j) of all places k, from `first`,
// length). Of short segments each result is one thread's, in the order of the places, else a team's.
template <class T, class Value, class Op, class Store>
void reduce_segments(const Call& call, const Segments& segments, int64_t row, T first, Value value, Op op,
                     Store store) {
  constexpr int64_t few = 32;  // places
  if (row == 0 || segments.count == 0) return;
  if (segments.places / segments.count < few) {
    const Divider rows(static_cast<size_t>(row));
    each(call, static_cast<size_t>(segments.count * row), [=] __device__(size_t i) {
      const auto [s, j] = rows.signed_split(i);
      const int64_t begin = segments.first(s);
      const int64_t length = segments.length(s);
      T result = first;
      for (int64_t k = begin; k < begin + length; ++k) result = op(result, value(k, j));
      store(s, j, result, length);
    });
    return;
  }
  const auto columns = static_cast<unsigned>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(row, kTile))));
  const int64_t tiles = (row + columns - 1) / columns;
  each_team(call, static_cast<size_t>(segments.count * tiles), [=] __device__(size_t at, const Team& team) {
    const unsigned column = team.thread % columns, lane = team.thread / columns, lanes = kTeam / columns;
    const int64_t s = static_cast<int64_t>(at) / tiles, j = static_cast<int64_t>(at) % tiles * columns + column;
    const int64_t begin = segments.first(s), length = segments.length(s);
    T result = first;
    if (j < row)
      for (int64_t k = begin + lane; k < begin + length; k += lanes) result = op(result, value(k, j));
    result = team.reduce_within(result, op, lanes, column, columns);
    if (j < row && lane == 0) store(s, j, result, length);
  });
}

}  // namespace stepnet::gpu
