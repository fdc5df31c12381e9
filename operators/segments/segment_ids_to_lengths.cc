// SegmentIdsToLengths and SegmentIdsToRanges: how many places each segment has, and where its first one is, from each
// place's segment, in rising order. Segments that do not occur have no places. No derivatives: ids are integers.

#include <algorithm>
#include <limits>

#include "operators/loops/segment_lengths.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_segment_ids_to_lengths {
namespace {

// Throws Error naming the first id that is negative, smaller than the one before, or too large.
void check_ids(const Tensor& ids, int64_t segments) {
  with_indices(ids, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0 || values[i] >= segments)
        fail("segment id {} is {}, which is outside of 0 to {}", i, values[i], segments - 1);
      if (i > 0 && values[i] < values[i - 1])
        fail("segment id {} is {}, which is less than {} before it", i, values[i], values[i - 1]);
    }
  });
}

// The rows of the second input, or one more than the last id; nothing if that is not known yet.
std::optional<int64_t> segment_count(const ShapeCall& call) {
  require_one_dimension(call, 0, "segment_ids");
  if (call.has(1)) {
    if (!call.known(1)) return std::nullopt;
    require(call.shape(1).rank() >= 1, "the second input is a single value, which has no rows");
    return call.shape(1)[0];
  }
  if (!call.value(0)) return std::nullopt;
  int64_t last = -1;
  with_indices(*call.value(0), [&](auto values) {
    if (!values.empty()) last = std::max<int64_t>(values.back(), -1);
  });
  require(last < std::numeric_limits<int32_t>::max(), "the last segment id is {}, which is too large", last);
  return last + 1;
}

// Calls fn(segment, place) for each place, in order.
template <class Fn>
void for_places(const Tensor& ids, const Fn& fn) {
  with_indices(ids, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i) fn(static_cast<int64_t>(values[i]), static_cast<int64_t>(i));
  });
}

void to_lengths(Call& call) {
  const Out<int32_t> lengths = call.out_span<int32_t>(0);
  check_ids(call.in(0), static_cast<int64_t>(lengths.size()));
  to_int32(call.in(0).size(), "the number of segment ids,");
  std::ranges::fill(lengths, 0);
  for_places(call.in(0), [&](int64_t segment, int64_t) { ++lengths[segment]; });
}

void to_ranges(Call& call) {
  const Out<int32_t> ranges = call.out_span<int32_t>(0);
  const auto segments = static_cast<int64_t>(ranges.size() / 2);
  check_ids(call.in(0), segments);
  to_int32(call.in(0).size(), "the number of segment ids,");
  std::ranges::fill(ranges, 0);
  for_places(call.in(0), [&](int64_t segment, int64_t) { ++ranges[2 * segment + 1]; });
  for (int64_t s = 1; s < segments; ++s) ranges[2 * s] = ranges[2 * s - 2] + ranges[2 * s - 1];
}

// The inputs, and the examples, which are those of both.
OpBuilder<>& declare(OpBuilder<>& spec) {
  return spec.input("segment_ids", "the segment of each place, one dimension, none less than the one before")
      .types({DType::int32, DType::int64})
      .input("data", "a tensor with a row for each segment; without it there are as many as the last id says")
      .any_type()
      .shape_only()
      .optional()
      .stop_gradient()
      .example({"segment_ids=int32,5:0,0,2,2,2"})
      .example({"segment_ids=int64,2:1,1", "data=4,2"})
      .example({"segment_ids=int32,0"});
}

REGISTER(segment_ids_to_lengths) {
  auto spec = op("SegmentIdsToLengths");
  return declare(spec)
      .doc("The number of places of each segment.")
      .output("lengths", "[N], int32")
      .types({DType::int32})
      .shape([](const NoArgs&, ShapeCall& call) {
        if (const auto n = segment_count(call)) call.set(0, DType::int32, Shape{*n});
      })
      .cpu(to_lengths);
}

REGISTER(segment_ids_to_ranges) {
  auto spec = op("SegmentIdsToRanges");
  return declare(spec)
      .doc("The first place and the number of places of each segment.")
      .output("ranges", "[N, 2], int32")
      .types({DType::int32})
      .shape([](const NoArgs&, ShapeCall& call) {
        if (const auto n = segment_count(call)) call.set(0, DType::int32, Shape{*n, 2});
      })
      .cpu(to_ranges);
}

}  // namespace
}  // namespace stepnet::cpu_segment_ids_to_lengths
