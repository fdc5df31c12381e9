// What follows from the lengths of segments alone:
//   LengthsToRanges      (first place, length) of each       LengthsToSegmentIds  each place's segment
//   LengthsRangeFill     0, 1, ... in each                   LengthsToWeights     1 / length^power at each place
//   LengthsToShape       [number of segments, length], where all have one length
// No derivatives: lengths are integers.
#include "operators/segments/lengths_to_ranges.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/operator/flops.h"
#include "operators/loops/segment_lengths.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_lengths_to_ranges {
namespace {

void infer_ranges(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 0, "lengths");
  if (call.known(0)) call.set(0, DType::int32, Shape{call.shape(0)[0], 2});
}

void infer_places(ShapeCall& call, DType dtype) {
  require_one_dimension(call, 0, "lengths");
  if (call.value(0)) call.set(0, dtype, Shape{read_segment_lengths(*call.value(0)).sum});
}

// Calls fn(segment, first place, length) for each segment.
template <class Fn>
void for_segments(In<int32_t> lengths, const Fn& fn) {
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); at += lengths[i++]) fn(static_cast<int64_t>(i), at, lengths[i]);
}

void to_ranges(In<int32_t> lengths, Out<int32_t> ranges, Call& call) {
  read_segment_lengths(call.in(0));
  for_segments(lengths, [&](int64_t i, int64_t at, int32_t length) {
    ranges[2 * i] = to_int32(at, "the first place of a segment,");
    ranges[2 * i + 1] = length;
  });
}

void to_segment_ids(In<int32_t> lengths, Out<int32_t> ids) {
  for_segments(lengths, [&](int64_t i, int64_t at, int32_t length) {
    std::fill_n(ids.data() + at, length, static_cast<int32_t>(i));
  });
}

void fill_ranges(In<int32_t> lengths, Out<int32_t> places) {
  for_segments(lengths, [&](int64_t, int64_t at, int32_t length) {
    std::iota(places.data() + at, places.data() + at + length, 0);
  });
}

void to_weights(const LengthsToWeightsArgs& args, In<int32_t> lengths, Out<float> weights) {
  for_segments(lengths, [&](int64_t, int64_t at, int32_t length) {
    std::fill_n(weights.data() + at, length, static_cast<float>(std::pow(static_cast<double>(length), -args.power)));
  });
}

void infer_shape(const NoArgs&, ShapeCall& call) {
  require_one_dimension(call, 0, "lengths");
  call.set(0, DType::int32, Shape{2});
}

void to_shape(In<int32_t> lengths, Out<int32_t> shape, Call& call) {
  read_segment_lengths(call.in(0));
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] != lengths[0]) fail("length {} is {}, but length 0 is {}", i, lengths[i], lengths[0]);
  shape[0] = to_int32(static_cast<int64_t>(lengths.size()), "the number of lengths,");
  shape[1] = lengths.empty() ? 0 : lengths[0];
}

template <class Args>
OpBuilder<Args>& declare(OpBuilder<Args>& spec) {
  return spec.input("lengths", "[N], the length of each segment").types({DType::int32}).stop_gradient();
}

// With whole numbers in its output, for segments that may be empty.
OpBuilder<>& declare_numbers(OpBuilder<>& spec, const char* output, const char* doc) {
  return declare(spec)
      .output(output, doc)
      .types({DType::int32})
      .example({"lengths=int32,3:3,0,2"})
      .example({"lengths=int32,0"});
}

REGISTER(lengths_to_ranges) {
  auto spec = op("LengthsToRanges");
  return declare_numbers(spec, "ranges", "[N, 2], int32")
      .doc("The first place and the length of each segment.")
      .shape(infer_ranges)
      .cpu(to_ranges);
}

REGISTER(lengths_to_segment_ids) {
  auto spec = op("LengthsToSegmentIds");
  return declare_numbers(spec, "segment_ids", "[sum of lengths], int32")
      .doc("The segment that each place belongs to.")
      .shape([](const NoArgs&, ShapeCall& call) { infer_places(call, DType::int32); })
      .cpu(to_segment_ids);
}

REGISTER(lengths_range_fill) {
  auto spec = op("LengthsRangeFill");
  return declare_numbers(spec, "range_sequence", "[sum of lengths], int32")
      .doc("The numbers from 0 to length - 1, for each segment.")
      .shape([](const NoArgs&, ShapeCall& call) { infer_places(call, DType::int32); })
      .cpu(fill_ranges);
}

REGISTER(lengths_to_weights) {
  auto spec = op<LengthsToWeightsArgs>("LengthsToWeights");
  return declare(spec)
      .doc("A weight for each place, by the length of its segment.")
      .arg("power", &LengthsToWeightsArgs::power, 0.5f, "the weight is 1 / length^power")
      .output("weights", "[sum of lengths], float")
      .types({DType::float32})
      .shape([](const LengthsToWeightsArgs&, ShapeCall& call) { infer_places(call, DType::float32); })
      .flops(flops_per_output(2))
      .cpu_for<float>(to_weights)
      .example({"lengths=int32,3:3,0,2"})
      .example({"lengths=int32,1:1"}, {"power=2"});
}

REGISTER(lengths_to_shape) {
  auto spec = op("LengthsToShape");
  return declare(spec)
      .doc("The number of segments and the length that all of them have.")
      .output("shape", "[2], int32")
      .types({DType::int32})
      .shape(infer_shape)
      .cpu(to_shape)
      .example({"lengths=int32,2:3,3"})
      .example({"lengths=int32,0"});
}

}  // namespace
}  // namespace stepnet::cpu_lengths_to_ranges
