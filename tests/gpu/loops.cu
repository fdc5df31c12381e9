#include "tests/gpu/loops.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/launch.h"

namespace stepnet::testing {

void reduce_on_gpu(const Call& call, const Tensor& x, Tensor& sums, Tensor& largest) {
  const gpu::Axis axis{x.dim(0), x.dim(1), x.dim(2)};
  const size_t count = static_cast<size_t>(axis.count), inner = static_cast<size_t>(axis.inner);
  const gpu::In<double> from = gpu::in_span<double>(x);
  const gpu::Out<double> sum = gpu::out_span<double>(sums), most = gpu::out_span<double>(largest);
  const auto value = [=] __device__(size_t o, size_t c, size_t i) { return from[(o * count + c) * inner + i]; };
  gpu::reduce_axis(
      call, axis, 0.0, value, [] __device__(double a, double b) { return a + b; },
      [=] __device__(size_t o, size_t i, double v) { sum[o * inner + i] = v; });
  gpu::reduce_axis(
      call, axis, -1.0, value, [] __device__(double a, double b) { return a > b ? a : b; },
      [=] __device__(size_t o, size_t i, double v) { most[o * inner + i] = v; });
}

void count_on_gpu(const Call& call, Tensor& y) {
  const gpu::Out<int64_t> to = gpu::out_span<int64_t>(y);
  gpu::each(call, to.size, [=] __device__(size_t i) { to[i] = static_cast<int64_t>(i); });
}

struct Doubled {
  constexpr float operator()(float x) const { return 2 * x; }
};
void double_on_gpu(const Call& call, const Tensor& x, Tensor& y) {
  gpu::map(call, gpu::in_span<float>(x), gpu::out_span<float>(y), Doubled());
}

void add_up_teams(const Call& call, Tensor& y) {
  const gpu::Out<int64_t> to = gpu::out_span<int64_t>(y);
  gpu::each_team(call, static_cast<size_t>(y.dim(0)), [=] __device__(size_t i, const gpu::Team& team) {
    to[i * gpu::Team::size + team.thread] = team.sum(static_cast<int64_t>(i + team.thread));
  });
}

int64_t team_size() { return gpu::Team::size; }

}  // namespace stepnet::testing
