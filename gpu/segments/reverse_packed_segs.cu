// CUDA kernel for ReversePackedSegs. Meaning and derivative: see operators/segments/reverse_packed_segs.cc.
#include "gpu/loops/by_width.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_reverse_packed_segs {
namespace {

template <class W>
void reverse_rows(const Tensor& data, const gpu::Indices& lengths, Tensor& reversed, Call& call) {
  const int64_t steps = data.dim(0), batch = data.dim(1), row = data.shape().size_between(2, data.rank());
  const gpu::Bounds bounds = gpu::bounds(call, "a length");
  const W* x = gpu::elements<W>(data);
  W* y = gpu::elements<W>(reversed);
  gpu::each(call, static_cast<size_t>(reversed.size()), [=] __device__(size_t i) {
    const int64_t place = static_cast<int64_t>(i), r = place / row, t = r / batch, b = r % batch, length = lengths[b];
    const bool turns = bounds.inside(length, steps + 1) && t < length;
    y[i] = turns ? x[((length - 1 - t) * batch + b) * row + place % row] : x[i];
  });
}

void reverse(Call& call) {
  const gpu::Indices lengths(call.in(1));
  gpu::by_width(call.in(0),
                [&](auto element) { reverse_rows<decltype(element)>(call.in(0), lengths, call.out(0), call); });
}

REGISTER(reverse_packed_segs_cuda) { return cuda("ReversePackedSegs", reverse); }

}  // namespace
}  // namespace stepnet::gpu_reverse_packed_segs
