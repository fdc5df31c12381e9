// CUDA kernels for PRelu and PReluGradient. Meaning and derivative: see operators/pointwise/prelu.cc.
#include "operators/pointwise/prelu.h"

#include "gpu/loops/total.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_prelu {
namespace {

// The slope of element i is that of channel i / inner % channels.
struct Channels {
  size_t channels = 1, inner = 1;
  gpu::Divider by_channels = gpu::Divider(channels), by_inner = gpu::Divider(inner);
  __device__ size_t of(size_t i) const { return by_channels.split(by_inner.divide(i)).remainder; }
};

Channels channels_of(const PReluArgs& a, const Shape& x, const Shape& slope) {
  const auto channels = static_cast<size_t>(slope.size());
  if (channels == 1 || a.channels_last()) return {channels, 1};
  return {channels, static_cast<size_t>(x.size_between(2, x.rank()))};
}

template <class T>
void forward(const PReluArgs& a, gpu::In<T> x, gpu::In<T> slope, gpu::Out<T> y, Call& call) {
  const Channels at = channels_of(a, call.in(0).shape(), call.in(1).shape());
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = Bent<T>()(x[i], slope[at.of(i)]); });
}

// dslope, or what is added to it, is the sum of dY X over the elements of its channel that are not positive.
template <class T>
void gradient_of_slope(const Call& call, const Channels& at, gpu::In<T> dy, gpu::In<T> x, gpu::Out<T> dslope) {
  const bool accumulates = call.accumulates(1);
  auto part = [=] __device__(size_t i) { return x[i] > T(0) ? T(0) : dy[i] * x[i]; };
  auto store = [=] __device__(size_t c, T sum) { dslope[c] = accumulates ? dslope[c] + sum : sum; };
  if (at.channels == 1) {
    gpu::total(call, x.size, T(0), part, std::plus<T>(), [=] __device__(T sum) { store(0, sum); });
    return;
  }
  if (at.channels == 0) return;
  const size_t channels = at.channels, inner = at.inner;
  if (inner == 1) {
    gpu::reduce_axis(
        call, {1, static_cast<int64_t>(x.size / channels), static_cast<int64_t>(channels)}, T(0),
        [=] __device__(size_t, size_t row, size_t c) { return part(row * channels + c); }, std::plus<T>(),
        [=] __device__(size_t, size_t c, T sum) { store(c, sum); });
    return;
  }
  gpu::reduce_axis(
      call, {static_cast<int64_t>(channels), static_cast<int64_t>(x.size / channels), 1}, T(0),
      [=] __device__(size_t c, size_t k, size_t) {
        const auto [line, place] = at.by_inner.split(k);
        return part((line * channels + c) * inner + place);
      },
      std::plus<T>(), [=] __device__(size_t c, size_t, T sum) { store(c, sum); });
}

// Of Y only the shape is there, and of the slope too if dX is not wanted.
template <class T>
void gradient(const PReluArgs& a, const Tensor&, gpu::In<T> dy, gpu::In<T> x, gpu::In<T> slope, gpu::Out<T> dx,
              gpu::Out<T> dslope, Call& call) {
  const Channels at = channels_of(a, call.in(2).shape(), call.in(3).shape());
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = x[i] > T(0) ? dy[i] : slope[at.of(i)] * dy[i]; });
  if (call.wants(1)) gradient_of_slope(call, at, dy, x, dslope);
}

REGISTER(prelu_cuda) { return cuda<PReluArgs>("PRelu", forward<float>, forward<double>); }
REGISTER(prelu_gradient_cuda) { return cuda<PReluArgs>("PReluGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_prelu
