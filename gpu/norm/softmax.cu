// CUDA kernels for Softmax and its gradient. Meaning and derivatives: see operators/norm/softmax.cc.
#include "operators/norm/softmax.h"

#include "gpu/loops/softmax_rows.h"
#include "gpu/loops/teams.h"
#include "gpu/runtime/timesteps.h"
#include "stepnet/half.h"

namespace stepnet::gpu_softmax {
namespace {

// What sums are taken in: halves are too narrow for them.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
void run_forward(int device, const OneAxis& lines, gpu::In<T> x, gpu::Out<T> y) {
  const auto size = static_cast<size_t>(lines.size), inner = static_cast<size_t>(lines.inner);
  if (size == 0 || (inner == 1 && gpu::vendor_softmax(device, {lines.outer, lines.size}, false, x, y))) return;
  gpu::each_team(device, static_cast<size_t>(lines.lines()), [=] __device__(size_t line, const gpu::Team& team) {
    const size_t first = line / inner * size * inner + line % inner;
    const auto at = [&](size_t i) { return first + i * inner; };
    Wide<T> most = x[first];
    for (size_t i = team.thread; i < size; i += team.size) most = x[at(i)] > most ? Wide<T>(x[at(i)]) : most;
    most = team.reduce(most, [](Wide<T> p, Wide<T> q) { return p > q ? p : q; });
    Wide<T> sum = 0;
    for (size_t i = team.thread; i < size; i += team.size) sum += exp(x[at(i)] - most);
    sum = team.sum(sum);
    for (size_t i = team.thread; i < size; i += team.size) y[at(i)] = exp(x[at(i)] - most) / sum;
  });
}

template <class T>
void run_gradient(int device, const OneAxis& lines, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx) {
  const auto size = static_cast<size_t>(lines.size), inner = static_cast<size_t>(lines.inner);
  if (inner == 1 && gpu::vendor_softmax_backward(device, {lines.outer, lines.size}, false, y, dy, dx)) return;
  gpu::each_team(device, static_cast<size_t>(lines.lines()), [=] __device__(size_t line, const gpu::Team& team) {
    const size_t first = line / inner * size * inner + line % inner, end = first + size * inner;
    const size_t begin = first + team.thread * inner, stride = team.size * inner;
    Wide<T> dot = 0;
    for (size_t i = begin; i < end; i += stride) dot += Wide<T>(y[i]) * Wide<T>(dy[i]);
    dot = team.sum(dot);
    for (size_t i = begin; i < end; i += stride) dx[i] = y[i] * (dy[i] - dot);
  });
}

// Whether it may be a part of a kernel for all timesteps, which has rows alone.
bool is_recorded(const OneAxis& lines) {
  return gpu::recording() && lines.inner == 1 && lines.size > 0 && lines.outer > 0;
}

gpu::QueuedRows queued(gpu::RowKind kind, DType dtype, const OneAxis& lines, const void* x, const void* dy, void* y) {
  gpu::QueuedRows work{.kind = kind, .dtype = dtype, .rows = lines.outer, .size = lines.size};
  work.tensors[gpu::RowTensor::x] = x;
  work.tensors[gpu::RowTensor::dy] = dy;
  work.tensors[gpu::RowTensor::y] = y;
  return work;
}

template <class T>
void forward(const SoftmaxArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const OneAxis lines = softmax_lines(a, call.in(0).shape());
  const int device = gpu::device_of(call);
  if (!is_recorded(lines)) return run_forward(device, lines, x, y);
  gpu::record(queued(gpu::RowKind::softmax, dtype_of<T>(), lines, x.data, nullptr, y.data),
              gpu::QueueAlone([device, lines, x, y] { run_forward(device, lines, x, y); }));
}

template <class T>
void gradient(const SoftmaxArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const OneAxis lines = softmax_lines(a, call.in(0).shape());
  const int device = gpu::device_of(call);
  if (!is_recorded(lines)) return run_gradient(device, lines, y, dy, dx);
  gpu::record(queued(gpu::RowKind::softmax_gradient, dtype_of<T>(), lines, y.data, dy.data, dx.data),
              gpu::QueueAlone([device, lines, y, dy, dx] { run_gradient(device, lines, y, dy, dx); }));
}

REGISTER(softmax_cuda) {
  return cuda<SoftmaxArgs>("Softmax", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(softmax_gradient_cuda) {
  return cuda<SoftmaxArgs>("SoftmaxGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}
}  // namespace
}  // namespace stepnet::gpu_softmax
