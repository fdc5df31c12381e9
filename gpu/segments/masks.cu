// CUDA kernels for SequenceMask and MaskByLength. Meaning and derivatives: see operators/segments/masks.cc.
#include "operators/segments/masks.h"

#include "gpu/loops/by_width.h"
#include "gpu/runtime/chain_writer.h"
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
struct Mask {
  bool beyond;
  gpu::In<int32_t> lengths, timesteps;
  size_t count, row;
  const W *x, *others;  // the second may be null
  W* y;
};

template <class W>
void mask_rows(int device, const Mask<W>& m) {
  gpu::each(device, m.count, [=] __device__(size_t i) {
    const size_t r = i / m.row, batch = m.lengths.size;
    const bool over = m.timesteps[r / batch] >= m.lengths[r % batch];
    m.y[i] = over == m.beyond ? m.x[i] : m.others ? m.others[i] : W{0};
  });
}

// As a part of a kernel for all timesteps.
template <class W>
void record(int device, DType dtype, const Mask<W>& m) {
  const auto width = static_cast<int64_t>(m.row);
  gpu::ChainWriter w;
  const int left = w.value(FusedCode::sub, w.read_int32(m.lengths.data, 1), w.read_int32(m.timesteps.data, 0));
  const int x = w.read(m.x, width);
  const int y = m.beyond ? w.value(FusedCode::unless_positive, left, x)
                         : w.if_positive(left, x, m.others ? w.read(m.others, width) : -1);
  w.write(y, m.y, width);
  w.record_as(dtype, width, static_cast<int64_t>(m.lengths.size),
              gpu::QueueAlone([device, m] { mask_rows(device, m); }));
}

void apply_mask_by_length(const MaskByLengthArgs& args, Call& call) {
  Tensor& out = call.out(0);
  const gpu::In<int32_t> lengths = gpu::in_span<int32_t>(call.in(1)), timesteps = gpu::in_span<int32_t>(call.in(2));
  const auto count = static_cast<size_t>(out.size());
  if (count == 0) return;
  const int device = gpu::device_of(call);
  gpu::by_width(call.in(0), [&](auto element) {
    using W = decltype(element);
    const Mask<W> mask{args.beyond,
                       lengths,
                       timesteps,
                       count,
                       count / (lengths.size * timesteps.size),
                       gpu::elements<W>(call.in(0)),
                       call.has(3) ? gpu::elements<W>(call.in(3)) : nullptr,
                       gpu::elements<W>(out)};
    if (gpu::recording() && timesteps.size == 1 && is_floating(out.dtype())) return record(device, out.dtype(), mask);
    mask_rows(device, mask);
  });
}

REGISTER(mask_by_length_cuda) { return cuda<MaskByLengthArgs>("MaskByLength", apply_mask_by_length); }

}  // namespace
}  // namespace stepnet::gpu_masks
