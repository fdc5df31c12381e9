// CUDA kernels for LogSoftmax and its gradient. Meaning and derivatives: see operators/norm/log_softmax.cc.
#include "operators/norm/softmax.h"

#include "gpu/loops/lines.h"
#include "gpu/loops/softmax_rows.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_log_softmax {
namespace {

// The places of a line's elements that a worker has.
struct Places {
  size_t begin, end, stride;

  template <class Worker>
  __device__ Places(size_t line, const Worker& worker, size_t size, size_t inner) {
    const size_t first = line / inner * size * inner + line % inner;
    begin = first + worker.thread * inner;
    end = first + size * inner;
    stride = Worker::size * inner;
  }
};

// y may be x.
template <class T>
struct ForwardLine {
  size_t size, inner;
  gpu::In<T> x;
  gpu::Out<T> y;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const auto [begin, end, stride] = Places(n, worker, size, inner);
    using Wide = gpu::Accumulate<T>;
    Wide most = -std::numeric_limits<Wide>::infinity();
    for (size_t i = begin; i < end; i += stride) most = x[i] > most ? Wide(x[i]) : most;
    most = worker.reduce(most, [](Wide a, Wide b) { return a > b ? a : b; });
    double sum = 0;
    for (size_t i = begin; i < end; i += stride) sum += static_cast<double>(exp(x[i] - most));
    const auto log_sum = static_cast<Wide>(log(worker.sum(sum)));
    for (size_t i = begin; i < end; i += stride) y[i] = x[i] - most - log_sum;
  }
};

// dx may be dy.
template <class T>
struct GradientLine {
  size_t size, inner;
  gpu::In<T> y, dy;
  gpu::Out<T> dx;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const auto [begin, end, stride] = Places(n, worker, size, inner);
    double sum = 0;
    for (size_t i = begin; i < end; i += stride) sum += static_cast<double>(dy[i]);
    const auto all = static_cast<gpu::Accumulate<T>>(worker.sum(sum));
    for (size_t i = begin; i < end; i += stride) dx[i] = dy[i] - exp(gpu::Accumulate<T>(y[i])) * all;
  }
};

template <class T>
void forward(const SoftmaxArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const OneAxis lines = softmax_lines(a, call.in(0).shape());
  if (lines.inner == 1 && gpu::vendor_softmax(gpu::device_of(call), {lines.outer, lines.size}, true, x, y)) return;
  const auto size = static_cast<size_t>(lines.size), inner = static_cast<size_t>(lines.inner);
  gpu::each_line(call, lines, ForwardLine<T>{size, inner, x, y});
}

template <class T>
void gradient(const SoftmaxArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const OneAxis lines = softmax_lines(a, call.in(0).shape());
  if (lines.inner == 1 &&
      gpu::vendor_softmax_backward(gpu::device_of(call), {lines.outer, lines.size}, true, y, dy, dx))
    return;
  const auto size = static_cast<size_t>(lines.size), inner = static_cast<size_t>(lines.inner);
  gpu::each_line(call, lines, GradientLine<T>{size, inner, y, dy, dx});
}

REGISTER(log_softmax_cuda) {
  return cuda<SoftmaxArgs>("LogSoftmax", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(log_softmax_gradient_cuda) {
  return cuda<SoftmaxArgs>("LogSoftmaxGradient", gradient<float>, gradient<double>, gradient<float16>,
                           gradient<bfloat16>);
}
}  // namespace
}  // namespace stepnet::gpu_log_softmax
