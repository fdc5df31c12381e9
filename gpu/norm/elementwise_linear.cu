// CUDA kernels for ElementwiseLinear and its gradient. Meaning and derivative: see
// operators/norm/elementwise_linear.cc.
#include "operators/norm/elementwise_linear.h"

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"
#include "operators/loops/axis_rows.h"

namespace stepnet::gpu_elementwise_linear {
namespace {

template <class T>
void forward(const LinearArgs& a, gpu::In<T> x, gpu::In<T> w, gpu::In<T> b, gpu::Out<T> y, Call& call) {
  const auto n = static_cast<size_t>(rows_of(a, call.in(0).shape()).size);
  const gpu::Divider rows(n);
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const size_t j = rows.split(i).remainder;
    y[i] = x[i] * w[j] + b[j];
  });
}

// sums, [N], is the sum of dy x over the rows, or of dy if there is no x; or is added to.
template <class T>
void sum_columns(const Call& call, AxisRows rows, const T* dy, const T* x, gpu::Out<T> sums, bool accumulate) {
  const auto n = static_cast<size_t>(rows.size);
  gpu::reduce_axis(
      call, {1, rows.count, rows.size}, gpu::Accumulate<T>(0),
      [=] __device__(size_t, size_t r, size_t j) {
        const size_t i = r * n + j;
        const gpu::Accumulate<T> d = dy[i];
        return x ? d * x[i] : d;
      },
      std::plus<gpu::Accumulate<T>>(),
      [=] __device__(size_t, size_t j, gpu::Accumulate<T> sum) { sums[j] = accumulate ? sums[j] + sum : sum; });
}

// Values of X and w are there if they are needed.
template <class T>
void gradient(const LinearArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::In<T> w, gpu::Out<T> dx, gpu::Out<T> dw,
              gpu::Out<T> db, Call& call) {
  const AxisRows rows = rows_of(a, call.in(1).shape());
  const gpu::Divider columns(static_cast<size_t>(rows.size));
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[i] * w[columns.split(i).remainder]; });
  if (call.wants(1)) sum_columns(call, rows, dy.data, x.data, dw, call.accumulates(1));
  if (call.wants(2)) sum_columns<T>(call, rows, dy.data, nullptr, db, call.accumulates(2));
}

REGISTER(elementwise_linear_cuda) {
  return cuda<LinearArgs>("ElementwiseLinear", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(elementwise_linear_gradient_cuda) {
  return cuda<LinearArgs>("ElementwiseLinearGradient", gradient<float>, gradient<double>, gradient<float16>,
                          gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_elementwise_linear
