// CUDA kernels for PackSegments, UnpackSegments, their gradients and ReversePackedSegs. Meaning and derivatives: see
// operators/segments/pack_segments.cc.
#include "operators/segments/pack_segments.h"

#include "gpu/loops/by_width.h"
#include "gpu/loops/row_segments.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_pack_segments {
namespace {

// Where the segments begin among `values` rows; what is not kept has its place there if `with_lost`. `longest`: what
// a length may be at most.
Tensor starts_of(const UnpackSegmentsArgs& args, const Call& call, int64_t values, int64_t longest, bool with_lost) {
  gpu::SegmentRules rules{.places = values};
  if (args.max_length < 0 || (!with_lost && args.max_length > longest))
    rules.longest = longest;
  else if (!with_lost)
    rules.kept = args.max_length;
  return gpu::segment_starts(call, call.in(0), rules);
}

// packed[s, t] = values[first place of s + t], and `pad` behind the end.
template <class W>
void put_rows(const Call& call, const gpu::Segments& segments, const Tensor& values, Tensor& packed, W pad) {
  const int64_t longest = packed.dim(1), row = packed.shape().size_between(2, packed.rank());
  const W* from = gpu::elements<W>(values);
  W* to = gpu::elements<W>(packed);
  const gpu::Divider rows(static_cast<size_t>(row)), places(static_cast<size_t>(longest));
  gpu::each(call, static_cast<size_t>(packed.size()), [=] __device__(size_t i) {
    const auto [r, column] = rows.signed_split(i);
    const auto [s, t] = places.signed_split(static_cast<size_t>(r));
    to[i] = t < segments.length(s) ? from[(segments.first(s) + t) * row + column] : pad;
  });
}

// values[first place of s + t] = packed[s, t], and zero where t is beyond.
template <class W>
void take_rows(const Call& call, const gpu::Segments& segments, const Tensor& packed, Tensor& values) {
  const int64_t longest = packed.dim(1), row = values.shape().size_between(1, values.rank());
  const W* from = gpu::elements<W>(packed);
  W* to = gpu::elements<W>(values);
  const gpu::Divider rows(static_cast<size_t>(row));
  gpu::each(call, static_cast<size_t>(values.size()), [=] __device__(size_t i) {
    const auto [k, column] = rows.signed_split(i);
    const int64_t s = segments.of(k), t = s < segments.count ? k - segments.first(s) : longest;
    to[i] = t < longest ? from[(s * longest + t) * row + column] : W{0};
  });
}

// Its bits.
uint64_t minus_infinity(DType type) {
  if (type == DType::float16) return 0xfc00;
  if (type == DType::bfloat16) return 0xff80;
  return type == DType::float32 ? 0xff800000 : 0xfff0000000000000;
}

void put(const Call& call, const gpu::Segments& segments, const Tensor& values, Tensor& packed, bool infinity) {
  gpu::by_width(values, [&](auto element) {
    using W = decltype(element);
    put_rows<W>(call, segments, values, packed, infinity ? static_cast<W>(minus_infinity(values.dtype())) : W{0});
  });
}

void take(const Call& call, const gpu::Segments& segments, const Tensor& packed, Tensor& values) {
  gpu::by_width(values, [&](auto element) { take_rows<decltype(element)>(call, segments, packed, values); });
}

void mark_rows(const Call& call, const gpu::Segments& segments, Tensor& mask) {
  const int64_t longest = mask.dim(1);
  const gpu::Out<bool> to = gpu::out_span<bool>(mask);
  const gpu::Divider places(static_cast<size_t>(longest));
  gpu::each(call, to.size, [=] __device__(size_t i) {
    const auto [s, t] = places.signed_split(i);
    to[i] = t < segments.length(s);
  });
}

void pack(const PackSegmentsArgs& args, Call& call) {
  const int64_t values = call.in(1).dim(0);
  const Tensor starts = starts_of(args, call, values, values, true);
  const gpu::Segments segments(starts, values);
  if (call.wants(0)) put(call, segments, call.in(1), call.out(0), args.pad_minf);
  if (call.wants(1)) mark_rows(call, segments, call.out(1));
}

void pack_gradient(const UnpackSegmentsArgs& args, const Tensor&, const Tensor& dy, Tensor& dx, Call& call) {
  const Tensor starts = starts_of(args, call, dx.dim(0), dy.dim(1), true);
  take(call, gpu::Segments(starts, dx.dim(0)), dy, dx);
}

void unpack(const UnpackSegmentsArgs& args, const Tensor&, const Tensor& packed, Tensor& values, Call& call) {
  const Tensor starts = starts_of(args, call, values.dim(0), packed.dim(1), false);
  take(call, gpu::Segments(starts, values.dim(0)), packed, values);
}

void unpack_gradient(const UnpackSegmentsArgs& args, const Tensor&, const Tensor&, const Tensor& dy, Tensor& dx,
                     Call& call) {
  require(dy.dtype() == dx.dtype() && dy.rank() >= 1 && dy.shape().from(1) == dx.shape().from(2),
          "the gradient {} has not the rows of the packed segments {}", dy, dx);
  const Tensor starts = starts_of(args, call, dy.dim(0), dx.dim(1), false);
  put(call, gpu::Segments(starts, dy.dim(0)), dy, dx, false);
}

REGISTER(pack_segments_cuda) { return cuda<PackSegmentsArgs>("PackSegments", pack); }
REGISTER(pack_segments_gradient_cuda) { return cuda<UnpackSegmentsArgs>("PackSegmentsGradient", pack_gradient); }
REGISTER(unpack_segments_cuda) { return cuda<UnpackSegmentsArgs>("UnpackSegments", unpack); }
REGISTER(unpack_segments_gradient_cuda) { return cuda<UnpackSegmentsArgs>("UnpackSegmentsGradient", unpack_gradient); }

template <class W>
void reverse_rows(const Tensor& data, const gpu::Indices& lengths, Tensor& reversed, Call& call) {
  const int64_t steps = data.dim(0), batch = data.dim(1), row = data.shape().size_between(2, data.rank());
  const gpu::Bounds bounds = gpu::bounds(call, "a length");
  const W* x = gpu::elements<W>(data);
  W* y = gpu::elements<W>(reversed);
  const gpu::Divider rows(static_cast<size_t>(row)), samples(static_cast<size_t>(batch));
  gpu::each(call, static_cast<size_t>(reversed.size()), [=] __device__(size_t i) {
    const auto [r, column] = rows.signed_split(i);
    const auto [t, b] = samples.signed_split(static_cast<size_t>(r));
    const int64_t length = lengths[static_cast<size_t>(b)];
    const bool turns = bounds.inside(length, steps + 1) && t < length;
    y[i] = turns ? x[((length - 1 - t) * batch + b) * row + column] : x[i];
  });
}

void reverse_segments(Call& call) {
  const gpu::Indices lengths(call.in(1));
  gpu::by_width(call.in(0),
                [&](auto element) { reverse_rows<decltype(element)>(call.in(0), lengths, call.out(0), call); });
}

REGISTER(reverse_packed_segs_cuda) { return cuda("ReversePackedSegs", reverse_segments); }

}  // namespace
}  // namespace stepnet::gpu_pack_segments
