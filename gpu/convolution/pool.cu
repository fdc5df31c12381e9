// CUDA kernels for MaxPool, AveragePool and their gradients. Meaning and derivatives: see
// operators/convolution/pool.cc.
#include "operators/convolution/pool.h"

#include "gpu/convolution/windows.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_pool {
namespace {

template <class T>
void max_forward(const MaxPoolArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const gpu::DividingWindows w(pool_windows(a, call.in(0).shape()));
  const gpu::Divider images(static_cast<size_t>(w.outputs));
  gpu::each(call, y.size, [=] __device__(size_t n) {
    const gpu::SignedSplit split = images.signed_split(n);
    const int64_t image = split.quotient, o = split.remainder;
    bool first = true;
    T most = 0;
    each_in_window(w, o, [&](int64_t i) {
      const T v = x[image * w.inputs + i];
      if (first || v > most || v != v) most = v;
      first = false;
    });
    y[n] = most;
  });
}

// Each element of X adds up what the windows that it is in have for it.
template <class T>
void max_gradient(const MaxPoolArgs& a, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const gpu::DividingWindows w(pool_windows(a, call.in(0).shape()));
  const gpu::Divider images(static_cast<size_t>(w.inputs));
  gpu::each(call, dx.size, [=] __device__(size_t n) {
    const gpu::SignedSplit split = images.signed_split(n);
    const int64_t image = split.quotient, i = split.remainder;
    gpu::Accumulate<T> sum = 0;
    each_window_with(w, i, [&](int64_t o) {
      if (x[n] == y[image * w.outputs + o]) sum += dy[image * w.outputs + o];
    });
    dx[n] = sum;
  });
}

template <class T>
void max_second(const MaxPoolArgs& a, gpu::In<T> x, gpu::In<T> y, gpu::In<T> ddx, gpu::Out<T> ddy, Call& call) {
  const gpu::DividingWindows w(pool_windows(a, call.in(0).shape()));
  const gpu::Divider images(static_cast<size_t>(w.outputs));
  gpu::each(call, ddy.size, [=] __device__(size_t n) {
    const gpu::SignedSplit split = images.signed_split(n);
    const int64_t image = split.quotient, o = split.remainder;
    gpu::Accumulate<T> sum = 0;
    each_in_window(w, o, [&](int64_t i) {
      const int64_t at = image * w.inputs + i;
      if (x[at] == y[n]) sum += ddx[at];
    });
    ddy[n] = sum;
  });
}

template <class T>
void average_forward(const AveragePoolArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const gpu::DividingWindows w(pool_windows(a, call.in(0).shape()));
  const bool with_padding = a.count_include_pad;
  const gpu::Divider images(static_cast<size_t>(w.outputs));
  gpu::each(call, y.size, [=] __device__(size_t n) {
    const gpu::SignedSplit split = images.signed_split(n);
    const int64_t image = split.quotient, o = split.remainder;
    gpu::Accumulate<T> sum = 0;
    each_in_window(w, o, [&](int64_t i) { sum += x[image * w.inputs + i]; });
    y[n] = sum / static_cast<gpu::Accumulate<T>>(averaged(w, o, with_padding));
  });
}

template <class T>
void average_gradient(const AveragePoolArgs& a, gpu::In<T>, gpu::In<T>, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const gpu::DividingWindows w(pool_windows(a, call.in(0).shape()));
  const bool with_padding = a.count_include_pad;
  const gpu::Divider images(static_cast<size_t>(w.inputs));
  gpu::each(call, dx.size, [=] __device__(size_t n) {
    const gpu::SignedSplit split = images.signed_split(n);
    const int64_t image = split.quotient, i = split.remainder;
    gpu::Accumulate<T> sum = 0;
    each_window_with(w, i, [&](int64_t o) {
      sum += dy[image * w.outputs + o] / static_cast<gpu::Accumulate<T>>(averaged(w, o, with_padding));
    });
    dx[n] = sum;
  });
}

REGISTER(max_pool_cuda) { return cuda<MaxPoolArgs>("MaxPool", max_forward<float>, max_forward<double>); }
REGISTER(max_pool_gradient_cuda) {
  return cuda<MaxPoolArgs>("MaxPoolGradient", max_gradient<float>, max_gradient<double>);
}
REGISTER(max_pool_second_gradient_cuda) {
  return cuda<MaxPoolArgs>("MaxPoolSecondGradient", max_second<float>, max_second<double>);
}
REGISTER(average_pool_cuda) {
  return cuda<AveragePoolArgs>("AveragePool", average_forward<float>, average_forward<double>);
}
REGISTER(average_pool_gradient_cuda) {
  return cuda<AveragePoolArgs>("AveragePoolGradient", average_gradient<float>, average_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_pool
