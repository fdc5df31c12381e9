// CUDA kernel for SequenceMask. Meaning and derivative: see operators/segments/sequence_mask.cc.
#include "operators/segments/sequence_mask.h"

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_sequence_mask {
namespace {

template <class T>
void mask(const SequenceMaskArgs& args, gpu::In<T> x, gpu::In<int32_t> values, gpu::Out<T> y, Call& call) {
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

REGISTER(sequence_mask_cuda) { return cuda<SequenceMaskArgs>("SequenceMask", mask<float>, mask<double>); }

}  // namespace
}  // namespace stepnet::gpu_sequence_mask
