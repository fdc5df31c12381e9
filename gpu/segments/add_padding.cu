// CUDA kernels for AddPadding, RemovePadding and GatherPadding. Meaning and derivatives: see
// operators/segments/add_padding.cc.
#include "operators/segments/add_padding.h"

#include <functional>

#include "gpu/loops/by_width.h"
#include "gpu/loops/row_segments.h"

namespace stepnet::gpu_add_padding {
namespace {

int64_t row_size(const Tensor& data) { return data.shape().size_between(1, data.rank()); }

Tensor starts_of(const Call& call) {
  const int64_t rows = call.in(0).dim(0);
  return call.has(1) ? gpu::segment_starts(call, call.in(1), {.places = rows}) : gpu::single_start(call, rows);
}

// The lengths with `more` rows each, which may be fewer.
void write_lengths(const Call& call, const gpu::Segments& segments, int64_t more) {
  if (!call.wants(1)) return;
  const gpu::Bounds bounds = gpu::bounds(call, "the length of a segment with its padding");
  const gpu::Out<int32_t> lengths = gpu::out_span<int32_t>(call.out(1));
  gpu::each(call, lengths.size, [=] __device__(size_t i) {
    const int64_t length = segments.length(static_cast<int64_t>(i)) + more;
    lengths[i] = bounds.inside(length, int64_t{INT32_MAX} + 1) ? static_cast<int32_t>(length) : 0;
  });
}

template <class W>
void add_rows(const Call& call, const gpu::Segments& segments, int64_t before, int64_t padding) {
  const int64_t row = row_size(call.in(0));
  const W *data = gpu::elements<W>(call.in(0)), *start = call.has(2) ? gpu::elements<W>(call.in(2)) : nullptr;
  const W* end = call.has(3) ? gpu::elements<W>(call.in(3)) : start;
  W* to = gpu::elements<W>(call.out(0));
  const gpu::Divider rows(static_cast<size_t>(row));
  gpu::each(call, static_cast<size_t>(call.out(0).size()), [=] __device__(size_t i) {
    const auto [r, j] = rows.signed_split(i);
    const int64_t s = segments.of(r, padding);
    W value = 0;
    if (s < segments.count) {
      const int64_t k = r - segments.first(s) - s * padding - before;
      if (k >= 0 && k < segments.length(s))
        value = data[(segments.first(s) + k) * row + j];
      else if (const W* from = k < 0 ? start : end)
        value = from[j];
    }
    to[i] = value;
  });
}

void add_padding(const PaddingArgs& args, Call& call) {
  const int64_t padding = padding_rows(args);
  const Tensor starts = starts_of(call);
  const gpu::Segments segments(starts, call.in(0).dim(0));
  write_lengths(call, segments, padding);
  if (!call.wants(0)) return;
  gpu::by_width(call.in(0), [&](auto element) { add_rows<decltype(element)>(call, segments, args.start(), padding); });
}

void check_room(const Call& call, const gpu::Segments& segments, int64_t padding) {
  const gpu::Bounds bounds = gpu::bounds(call, "the length of a segment less its padding");
  gpu::each(call, static_cast<size_t>(segments.count), [=] __device__(size_t i) {
    bounds.inside(segments.length(static_cast<int64_t>(i)) - padding, gpu::kAnyNumber);
  });
}

// A segment shorter than its padding is noted elsewhere; then the place may be beyond the data.
template <class W>
void remove_rows(const Call& call, const gpu::Segments& segments, int64_t before, int64_t padding) {
  const int64_t row = row_size(call.in(0)), rows = call.in(0).dim(0);
  const W* data = gpu::elements<W>(call.in(0));
  W* to = gpu::elements<W>(call.out(0));
  const gpu::Divider lines(static_cast<size_t>(row));
  gpu::each(call, static_cast<size_t>(call.out(0).size()), [=] __device__(size_t i) {
    const auto [r, column] = lines.signed_split(i);
    const int64_t s = segments.of(r, -padding), from = r + s * padding + before;
    to[i] = s < segments.count && from < rows ? data[from * row + column] : W{0};
  });
}

void remove_padding(const PaddingArgs& args, Call& call) {
  const int64_t padding = padding_rows(args);
  const Tensor starts = starts_of(call);
  const gpu::Segments segments(starts, call.in(0).dim(0));
  check_room(call, segments, padding);
  write_lengths(call, segments, -padding);
  if (!call.wants(0)) return;
  gpu::by_width(call.in(0),
                [&](auto element) { remove_rows<decltype(element)>(call, segments, args.start(), padding); });
}

// Of each segment the padding's rows from `first` on, `count` of them; those from `start` on stand at its end.
template <class T>
void sum_padding(const Call& call, const gpu::Segments& segments, const PaddingArgs& args, int64_t first, int64_t count,
                 gpu::In<T> data, gpu::Out<T> sum) {
  if (sum.size == 0) return;
  const int64_t row = static_cast<int64_t>(sum.size), start = args.start(), padding = padding_rows(args);
  gpu::reduce_axis(
      call, gpu::Axis{1, segments.count * count, row}, T(0),
      [=] __device__(size_t, size_t c, size_t j) {
        const int64_t at = static_cast<int64_t>(c), s = at / count, p = first + at % count;
        const int64_t length = segments.length(s), k = p < start ? p : length - padding + p;
        return k >= 0 && k < length ? data[(segments.first(s) + k) * row + j] : T(0);
      },
      std::plus<T>(), [=] __device__(size_t, size_t j, T value) { sum[j] = value; });
}

// A single output takes both sums: how many there are means something, wanted or not.
template <class T>
void gather_padding(const PaddingArgs& args, gpu::In<T> data, Call& call) {
  const int64_t padding = padding_rows(args), first = call.outputs() > 1 ? args.start() : padding;
  const Tensor starts = starts_of(call);
  const gpu::Segments segments(starts, call.in(0).dim(0));
  check_room(call, segments, padding);
  if (call.wants(0)) sum_padding(call, segments, args, 0, first, data, gpu::out_span<T>(call.out(0)));
  if (call.wants(1)) sum_padding(call, segments, args, first, padding - first, data, gpu::out_span<T>(call.out(1)));
}

REGISTER(add_padding_cuda) { return cuda<PaddingArgs>("AddPadding", add_padding); }
REGISTER(remove_padding_cuda) { return cuda<PaddingArgs>("RemovePadding", remove_padding); }
REGISTER(gather_padding_cuda) {
  return cuda<PaddingArgs>("GatherPadding", gather_padding<float>, gather_padding<double>);
}

}  // namespace
}  // namespace stepnet::gpu_add_padding
