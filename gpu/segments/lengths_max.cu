// CUDA kernels for LengthsMax and its gradient. Meaning and derivative: see operators/segments/lengths_max.cc.
#include "operators/segments/lengths_max.h"

#include <limits>

#include "gpu/loops/row_segments.h"

namespace stepnet::gpu_lengths_max {
namespace {

template <class T>
void maxima(gpu::In<T> data, const Tensor& lengths, gpu::Out<T> y, Call& call) {
  const Shape& shape = call.in(0).shape();
  const int64_t row = shape.size_between(1, shape.rank());
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = shape[0]});
  gpu::reduce_segments(
      call, gpu::Segments(starts, shape[0]), row, -std::numeric_limits<T>::infinity(),
      [=] __device__(int64_t k, int64_t j) { return data[k * row + j]; }, LargerOrNan(),
      [=] __device__(int64_t s, int64_t j, T most, int64_t length) { y[s * row + j] = length > 0 ? most : T(0); });
}

template <class T>
void gradient_of(const Call& call, const Shape& shape, gpu::In<T> data, gpu::In<T> y, const Tensor& lengths,
                 gpu::In<T> dy, gpu::Out<T> dx) {
  if (dx.size == 0) return;
  const int64_t row = shape.size_between(1, shape.rank());
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = shape[0]});
  const gpu::Segments segments(starts, shape[0]);
  const gpu::Divider rows(static_cast<size_t>(row));
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const auto [k, column] = rows.signed_split(i);
    const int64_t s = segments.of(k), at = s * row + column;
    dx[i] = s < segments.count && is_maximum(data[i], y[at]) ? dy[at] : T(0);
  });
}

template <class T>
void gradient(gpu::In<T> data, gpu::In<T> y, const Tensor& lengths, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gradient_of(call, call.in(0).shape(), data, y, lengths, dy, dx);
}
template <class T>
void public_gradient(gpu::In<T> y, gpu::In<T> dy, const Tensor& lengths, gpu::In<T> data, gpu::Out<T> dx, Call& call) {
  gradient_of(call, call.in(3).shape(), data, y, lengths, dy, dx);
}

REGISTER(lengths_max_cuda) { return cuda("LengthsMax", maxima<float>, maxima<double>); }
REGISTER(lengths_max_gradient_cuda) { return cuda("LengthsMaxGradient", gradient<float>, gradient<double>); }
REGISTER(lengths_max_with_main_input_and_forward_output_gradient_cuda) {
  return cuda("LengthsMaxWithMainInputAndForwardOutputGradient", public_gradient<float>, public_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_lengths_max
