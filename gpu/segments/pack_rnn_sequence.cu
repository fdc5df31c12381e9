// CUDA kernels for PackRNNSequence, UnpackRNNSequence and its gradient. Meaning and derivatives: see
// operators/segments/pack_rnn_sequence.cc.
#include "gpu/loops/by_width.h"
#include "gpu/loops/row_segments.h"

namespace stepnet::gpu_pack_rnn_sequence {
namespace {

// packed[t, b] = values[first place of b + t], and zero behind the end.
template <class W>
void put_rows(const Call& call, const gpu::Segments& samples, const Tensor& values, Tensor& packed) {
  const int64_t batch = packed.dim(1), row = packed.shape().size_between(2, packed.rank());
  const W* from = gpu::elements<W>(values);
  W* to = gpu::elements<W>(packed);
  const gpu::Divider rows(static_cast<size_t>(row)), places(static_cast<size_t>(batch));
  gpu::each(call, static_cast<size_t>(packed.size()), [=] __device__(size_t i) {
    const auto [r, column] = rows.signed_split(i);
    const auto [t, b] = places.signed_split(static_cast<size_t>(r));
    to[i] = t < samples.length(b) ? from[(samples.first(b) + t) * row + column] : W{0};
  });
}

// values[first place of b + t] = packed[t, b]
template <class W>
void take_rows(const Call& call, const gpu::Segments& samples, const Tensor& packed, Tensor& values) {
  const int64_t steps = packed.dim(0), batch = packed.dim(1), row = values.shape().size_between(1, values.rank());
  const W* from = gpu::elements<W>(packed);
  W* to = gpu::elements<W>(values);
  const gpu::Divider rows(static_cast<size_t>(row));
  gpu::each(call, static_cast<size_t>(values.size()), [=] __device__(size_t i) {
    const auto [k, column] = rows.signed_split(i);
    const int64_t b = samples.of(k), t = b < samples.count ? k - samples.first(b) : steps;
    to[i] = t < steps ? from[(t * batch + b) * row + column] : W{0};
  });
}

void put(const Call& call, const Tensor& values, const Tensor& lengths, Tensor& packed) {
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = values.dim(0), .longest = packed.dim(0)});
  const gpu::Segments samples(starts, values.dim(0));
  gpu::by_width(values, [&](auto element) { put_rows<decltype(element)>(call, samples, values, packed); });
}

void pack(const Tensor& values, const Tensor& lengths, Tensor& packed, Call& call) {
  put(call, values, lengths, packed);
}

void unpack(const Tensor& packed, const Tensor& lengths, Tensor& values, Call& call) {
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = values.dim(0), .longest = packed.dim(0)});
  const gpu::Segments samples(starts, values.dim(0));
  gpu::by_width(values, [&](auto element) { take_rows<decltype(element)>(call, samples, packed, values); });
}

void unpack_gradient(const Tensor&, const Tensor& lengths, const Tensor& dy, Tensor& dx, Call& call) {
  require(dy.dtype() == dx.dtype() && dy.rank() >= 1 && dy.shape().from(1) == dx.shape().from(2),
          "the gradient {} has not the rows of the sequence {}", dy, dx);
  put(call, dy, lengths, dx);
}

REGISTER(pack_rnn_sequence_cuda) { return cuda("PackRNNSequence", pack); }
REGISTER(unpack_rnn_sequence_cuda) { return cuda("UnpackRNNSequence", unpack); }
REGISTER(unpack_rnn_sequence_gradient_cuda) { return cuda("UnpackRNNSequenceGradient", unpack_gradient); }

}  // namespace
}  // namespace stepnet::gpu_pack_rnn_sequence
