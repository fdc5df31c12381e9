// CUDA kernel for BatchNormSecondGradient. Meaning: see operators/norm/batch_norm_second.cc.
#include "operators/norm/batch_norm_second.h"

#include "gpu/loops/channels.h"

namespace stepnet::gpu_batch_norm_second {
namespace {

namespace at = batch_norm_second;

// The products' sums, two at a time.
template <class T>
void sum_products(const Call& call, const Channels& channels, const BatchNormSecond<T>& t, BatchNormSecondSums* sums) {
  gpu::sum_channels(
      call, channels,
      [=] __device__(size_t c, size_t i) {
        const double h = t.in(at::kDdx, static_cast<int64_t>(i));
        return gpu::Pair{h, h * t.u(static_cast<int64_t>(c), static_cast<int64_t>(i))};
      },
      [=] __device__(size_t c, gpu::Pair sum) { sums[c].h = sum.first, sums[c].hu = sum.second; });
  gpu::sum_channels(
      call, channels,
      [=] __device__(size_t c, size_t i) {
        const double dy = t.in(at::kDy, static_cast<int64_t>(i));
        return gpu::Pair{dy, dy * t.u(static_cast<int64_t>(c), static_cast<int64_t>(i))};
      },
      [=] __device__(size_t c, gpu::Pair sum) { sums[c].dy = sum.first, sums[c].dyu = sum.second; });
  gpu::sum_channels(
      call, channels,
      [=] __device__(size_t, size_t i) {
        const auto k = static_cast<int64_t>(i);
        return gpu::Pair{t.in(at::kDdx, k) * t.in(at::kDy, k), 0};
      },
      [=] __device__(size_t c, gpu::Pair sum) { sums[c].hdy = sum.first; });
}

template <class T>
void second_gradient(const BatchNormArgs& a, gpu::In<T>, Call& call) {
  const Channels channels(a, call.in(at::kX).shape());
  const BatchNormSecond<T> t(
      static_cast<double>(channels.size()),
      [&](int i) { return call.has(i) ? gpu::in_span<T>(call.in(i)).data : nullptr; },
      [&](int o) { return call.wants(o) ? gpu::out_span<T>(call.out(o)).data : nullptr; });
  const gpu::Temporary<BatchNormSecondSums> room(call, channels.count);
  BatchNormSecondSums* const sums = room.data;
  sum_products(call, channels, t, sums);
  gpu::sum_channels(
      call, channels,
      [=] __device__(size_t c, size_t i) {
        const auto channel = static_cast<int64_t>(c), k = static_cast<int64_t>(i);
        const double v = t.put_element(sums[c], channel, k);
        return gpu::Pair{v, v * t.u(channel, k)};
      },
      [=] __device__(size_t c, gpu::Pair sum) {
        BatchNormSecondSums s = sums[c];
        s.v = sum.first;
        s.vu = sum.second;
        t.put_channel(s, static_cast<int64_t>(c));
      });
}

REGISTER(batch_norm_second_gradient_cuda) {
  return cuda<BatchNormArgs>("BatchNormSecondGradient", second_gradient<float>, second_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_batch_norm_second
