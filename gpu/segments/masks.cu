// CUDA kernels for SequenceMask and MaskByLength. Meaning and derivatives: see operators/segments/masks.cc.
#include "operators/segments/masks.h"

#include "gpu/loops/by_width.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_masks {
namespace {

template <class T>
void apply_sequence_mask(const SequenceMaskArgs& args, gpu::In<T> x, gpu::In<int32_t> values, gpu::Out<T> y,
                         Call& call) {
  const MaskLayout layout = mask_layout(args, call.in(0).shape());
  const MaskMode mode = mask_mode(args.mode);
  const int64_t radius = args.radius;
  const T masked = args.grad ? T(0) : static_cast<T>(args.fill_val);
  const gpu::Bounds bounds = gpu::bounds(call, "a length");
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const int64_t group = static_cast<int64_t>(i) / layout.repeats;
    const int64_t column = group % layout.columns, row = group / layout.columns % layout.rows;
    const int64_t value = values.data ? values[row] : 0;
    if (mode == MaskMode::sequence && value < 0) bounds.report(value, INT32_MAX);
    const KeptColumns kept = kept_columns(mode, radius, value, row, layout.columns);
    y[i] = column >= kept.begin && column < kept.end ? x[i] : masked;
  });
}

REGISTER(sequence_mask_cuda) {
  return cuda<SequenceMaskArgs>("SequenceMask", apply_sequence_mask<float>, apply_sequence_mask<double>);
}

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

void apply_mask_by_length(const MaskByLengthArgs& args, Call& call) {
  gpu::by_width(call.in(0), [&](auto element) { mask_rows<decltype(element)>(args.beyond, call); });
}

REGISTER(mask_by_length_cuda) { return cuda<MaskByLengthArgs>("MaskByLength", apply_mask_by_length); }

}  // namespace
}  // namespace stepnet::gpu_masks
