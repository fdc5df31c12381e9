// CUDA kernels for SegmentIdsToLengths and SegmentIdsToRanges. Meaning: see
// operators/segments/segment_ids_to_lengths.cc.
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_segment_ids_to_lengths {
namespace {

// The first place whose id is at least this one; ids rise.
__device__ inline int64_t first_place(const gpu::Indices& ids, int64_t id) {
  int64_t low = 0, high = ids.size;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (ids[static_cast<size_t>(middle)] < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void check_ids(const Call& call, const gpu::Indices& ids, int64_t segments) {
  require(ids.size <= INT32_MAX, "the number of segment ids, {} does not fit int32", ids.size);
  const gpu::Bounds inside = gpu::bounds(call, "a segment id"),
                    rising = gpu::bounds(call, "a segment id less the one before it");
  gpu::each(call, static_cast<size_t>(ids.size), [=] __device__(size_t i) {
    if (!inside.inside(ids[i], segments) || i == 0) return;
    rising.inside(ids[i] - ids[i - 1], segments);
  });
}

void to_lengths(const Tensor& segment_ids, gpu::Out<int32_t> lengths, Call& call) {
  const gpu::Indices ids(segment_ids);
  check_ids(call, ids, static_cast<int64_t>(lengths.size));
  gpu::each(call, lengths.size, [=] __device__(size_t i) {
    const auto s = static_cast<int64_t>(i);
    lengths[i] = static_cast<int32_t>(first_place(ids, s + 1) - first_place(ids, s));
  });
}

void to_ranges(const Tensor& segment_ids, gpu::Out<int32_t> ranges, Call& call) {
  const gpu::Indices ids(segment_ids);
  check_ids(call, ids, static_cast<int64_t>(ranges.size / 2));
  gpu::each(call, ranges.size / 2, [=] __device__(size_t i) {
    const auto s = static_cast<int64_t>(i);
    const int64_t first = first_place(ids, s);
    ranges[2 * i] = static_cast<int32_t>(first);
    ranges[2 * i + 1] = static_cast<int32_t>(first_place(ids, s + 1) - first);
  });
}

REGISTER(segment_ids_to_lengths_cuda) { return cuda("SegmentIdsToLengths", to_lengths); }
REGISTER(segment_ids_to_ranges_cuda) { return cuda("SegmentIdsToRanges", to_ranges); }

}  // namespace
}  // namespace stepnet::gpu_segment_ids_to_lengths
