// CUDA kernels for Softmax and its gradient. Meaning and derivatives: see operators/norm/softmax.cc.
#include "operators/norm/softmax.h"

#include "gpu/loops/softmax_rows.h"
#include "operators/loops/axis_rows.h"
#include "stepnet/half.h"

namespace stepnet::gpu_softmax {
namespace {

// What sums are taken in: halves are too narrow for them.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
void forward(const SoftmaxArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  const size_t size = static_cast<size_t>(rows.size);
  if (size == 0 || gpu::vendor_softmax(call, rows, false, x, y)) return;
  gpu::each_team(call, static_cast<size_t>(rows.count), [=] __device__(size_t r, const gpu::Team& team) {
    const size_t first = r * size;
    Wide<T> most = x[first];
    for (size_t i = team.thread; i < size; i += team.size) most = x[first + i] > most ? Wide<T>(x[first + i]) : most;
    most = team.reduce(most, [](Wide<T> p, Wide<T> q) { return p > q ? p : q; });
    Wide<T> sum = 0;
    for (size_t i = team.thread; i < size; i += team.size) sum += exp(x[first + i] - most);
    sum = team.sum(sum);
    for (size_t i = team.thread; i < size; i += team.size) y[first + i] = exp(x[first + i] - most) / sum;
  });
}

template <class T>
void gradient(const SoftmaxArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const AxisRows rows = rows_of(a, call.in(0).shape());
  const size_t size = static_cast<size_t>(rows.size);
  if (gpu::vendor_softmax_backward(call, rows, false, y, dy, dx)) return;
  gpu::each_team(call, static_cast<size_t>(rows.count), [=] __device__(size_t r, const gpu::Team& team) {
    Wide<T> dot = 0;
    for (size_t i = r * size + team.thread; i < (r + 1) * size; i += team.size) dot += Wide<T>(y[i]) * Wide<T>(dy[i]);
    dot = team.sum(dot);
    for (size_t i = r * size + team.thread; i < (r + 1) * size; i += team.size) dx[i] = y[i] * (dy[i] - dot);
  });
}

REGISTER(softmax_cuda) {
  return cuda<SoftmaxArgs>("Softmax", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(softmax_gradient_cuda) {
  return cuda<SoftmaxArgs>("SoftmaxGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}
}  // namespace
}  // namespace stepnet::gpu_softmax
