// CUDA kernels for what follows from lengths alone. Meaning: see operators/segments/lengths_to_ranges.cc.
#include "operators/segments/lengths_to_ranges.h"

#include "gpu/loops/row_segments.h"

namespace stepnet::gpu_lengths_to_ranges {
namespace {

void to_ranges(const Tensor& lengths, gpu::Out<int32_t> ranges, Call& call) {
  const Tensor starts = gpu::segment_starts(call, lengths, {});
  const gpu::Segments segments(starts, 0);
  const gpu::Bounds bounds = gpu::bounds(call, "the first place of a segment");
  gpu::each(call, static_cast<size_t>(segments.count), [=] __device__(size_t i) {
    const auto s = static_cast<int64_t>(i);
    const bool fits = bounds.inside(segments.first(s), int64_t{INT32_MAX} + 1);
    ranges[2 * i] = fits ? static_cast<int32_t>(segments.first(s)) : 0;
    ranges[2 * i + 1] = static_cast<int32_t>(segments.length(s));
  });
}

void to_segment_ids(const Tensor& lengths, gpu::Out<int32_t> ids, Call& call) {
  const auto places = static_cast<int64_t>(ids.size);
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = places});
  const gpu::Segments segments(starts, places);
  gpu::each(call, ids.size,
            [=] __device__(size_t k) { ids[k] = static_cast<int32_t>(segments.of(static_cast<int64_t>(k))); });
}

void fill_ranges(const Tensor& lengths, gpu::Out<int32_t> numbers, Call& call) {
  const auto places = static_cast<int64_t>(numbers.size);
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = places});
  const gpu::Segments segments(starts, places);
  gpu::each(call, numbers.size, [=] __device__(size_t i) {
    const auto k = static_cast<int64_t>(i);
    numbers[i] = static_cast<int32_t>(k - segments.first(segments.of(k)));
  });
}

void to_weights(const LengthsToWeightsArgs& args, const Tensor& lengths, gpu::Out<float> weights, Call& call) {
  const auto places = static_cast<int64_t>(weights.size);
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = places});
  const gpu::Segments segments(starts, places);
  const double power = args.power;
  gpu::each(call, weights.size, [=] __device__(size_t k) {
    const int64_t s = segments.of(static_cast<int64_t>(k));
    const int64_t length = s < segments.count ? segments.length(s) : 1;
    weights[k] = static_cast<float>(pow(static_cast<double>(length), -power));
  });
}

void to_shape(gpu::In<int32_t> lengths, gpu::Out<int32_t> shape, Call& call) {
  const gpu::Bounds bounds = gpu::bounds(call, "a length"),
                    equal = gpu::bounds(call, "the difference of a length from the first");
  require(lengths.size <= INT32_MAX, "the number of lengths, {} does not fit int32", lengths.size);
  gpu::each(call, std::max<size_t>(1, lengths.size), [=] __device__(size_t i) {
    const int64_t length = lengths.size > 0 ? lengths[i] : 0, first = lengths.size > 0 ? lengths[0] : 0;
    if (bounds.inside(length, int64_t{INT32_MAX} + 1)) equal.inside(length - first, 1);
    if (i > 0) return;
    shape[0] = static_cast<int32_t>(lengths.size);
    shape[1] = static_cast<int32_t>(first);
  });
}

REGISTER(lengths_to_ranges_cuda) { return cuda("LengthsToRanges", to_ranges); }
REGISTER(lengths_to_segment_ids_cuda) { return cuda("LengthsToSegmentIds", to_segment_ids); }
REGISTER(lengths_range_fill_cuda) { return cuda("LengthsRangeFill", fill_ranges); }
REGISTER(lengths_to_weights_cuda) { return cuda<LengthsToWeightsArgs>("LengthsToWeights", to_weights); }
REGISTER(lengths_to_shape_cuda) { return cuda("LengthsToShape", to_shape); }

}  // namespace
}  // namespace stepnet::gpu_lengths_to_ranges
