// CUDA kernel for MaskByLength. Meaning and derivative: see operators/segments/mask_by_length.cc.
#include "operators/segments/mask_by_length.h"

#include "gpu/loops/by_width.h"

namespace stepnet::gpu_mask_by_length {
namespace {

template <class W>
void mask_rows(bool beyond, Call& call) {
  const gpu::In<int32_t> lengths = gpu::in_span<int32_t>(call.in(1)), timesteps = gpu::in_span<int32_t>(call.in(2));
  Tensor& out = call.out(0);
  const size_t batch = lengths.size, rows = batch * timesteps.size, count = static_cast<size_t>(out.size());
  if (count == 0) return;
  const size_t row = count / rows;
  const W *x = gpu::elements<W>(call.in(0)), *others = call.has(3) ? gpu::elements<W>(call.in(3)) : nullptr;
  W* y = gpu::elements<W>(out);
  gpu::each(call, count, [=] __device__(size_t i) {
    const size_t r = i / row;
    const bool over = timesteps[r / batch] >= lengths[r % batch];
    y[i] = over == beyond ? x[i] : others ? others[i] : W{0};
  });
}

void mask(const MaskByLengthArgs& args, Call& call) {
  gpu::by_width(call.in(0), [&](auto element) { mask_rows<decltype(element)>(args.beyond, call); });
}

REGISTER(mask_by_length_cuda) { return cuda<MaskByLengthArgs>("MaskByLength", mask); }

}  // namespace
}  // namespace stepnet::gpu_mask_by_length
