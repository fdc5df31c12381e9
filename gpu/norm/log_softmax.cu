// CUDA kernels for LogSoftmax and its gradient. Meaning and derivatives: see operators/norm/log_softmax.cc.
#include "operators/norm/log_softmax.h"

#include "gpu/loops/lines.h"
#include "gpu/loops/softmax_rows.h"
#include "gpu/runtime/accumulate.h"
#include "operators/loops/axis_rows.h"

namespace stepnet::gpu_log_softmax {
namespace {

OneAxis lines_of(const LogSoftmaxArgs& a, const Shape& x) {
  const AxisRows rows = rows_of(a, x);
  return {rows.count, rows.size, 1};
}

// y may be x.
template <class T>
struct ForwardLine {
  size_t size;
  gpu::In<T> x;
  gpu::Out<T> y;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const size_t begin = n * size + worker.thread, end = (n + 1) * size;
    using Wide = gpu::Accumulate<T>;
    Wide most = -std::numeric_limits<Wide>::infinity();
    for (size_t i = begin; i < end; i += Worker::size) most = x[i] > most ? Wide(x[i]) : most;
    most = worker.reduce(most, [](Wide a, Wide b) { return a > b ? a : b; });
    double sum = 0;
    for (size_t i = begin; i < end; i += Worker::size) sum += static_cast<double>(exp(x[i] - most));
    const auto log_sum = static_cast<Wide>(log(worker.sum(sum)));
    for (size_t i = begin; i < end; i += Worker::size) y[i] = x[i] - most - log_sum;
  }
};

// dx may be dy.
template <class T>
struct GradientLine {
  size_t size;
  gpu::In<T> y, dy;
  gpu::Out<T> dx;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const size_t begin = n * size + worker.thread, end = (n + 1) * size;
    double sum = 0;
    for (size_t i = begin; i < end; i += Worker::size) sum += static_cast<double>(dy[i]);
    const auto all = static_cast<gpu::Accumulate<T>>(worker.sum(sum));
    for (size_t i = begin; i < end; i += Worker::size) dx[i] = dy[i] - exp(gpu::Accumulate<T>(y[i])) * all;
  }
};

template <class T>
void forward(const LogSoftmaxArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  if (gpu::vendor_softmax(call, rows_of(a, call.in(0).shape()), true, x, y)) return;
  const OneAxis lines = lines_of(a, call.in(0).shape());
  gpu::each_line(call, lines, ForwardLine<T>{static_cast<size_t>(lines.size), x, y});
}

template <class T>
void gradient(const LogSoftmaxArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  if (gpu::vendor_softmax_backward(call, rows_of(a, call.in(0).shape()), true, y, dy, dx)) return;
  const OneAxis lines = lines_of(a, call.in(0).shape());
  gpu::each_line(call, lines, GradientLine<T>{static_cast<size_t>(lines.size), y, dy, dx});
}

REGISTER(log_softmax_cuda) {
  return cuda<LogSoftmaxArgs>("LogSoftmax", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(log_softmax_gradient_cuda) {
  return cuda<LogSoftmaxArgs>("LogSoftmaxGradient", gradient<float>, gradient<double>, gradient<float16>,
                              gradient<bfloat16>);
}
}  // namespace
}  // namespace stepnet::gpu_log_softmax
