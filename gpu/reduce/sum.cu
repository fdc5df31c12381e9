// CUDA kernels for Sum, Max and Min. Meaning and derivatives: see operators/reduce/sum.cc.
#include "gpu/loops/reduce_axes.h"
#include "gpu/loops/temporary.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_sum {
namespace {

// As many terms as one launch adds.
constexpr int kMost = 64;
template <class T>
struct Terms {
  const T* x[kMost] = {};
  int count = 0;
};

// to = the terms, added in order to `from` if there is one. Every element is read before it is written, so that `to`
// may be any of the terms.
template <class T>
void add(const Call& call, size_t size, const T* from, const Terms<T>& terms, T* to) {
  gpu::each(call, size, [=] __device__(size_t i) {
    gpu::Accumulate<T> sum = terms.x[0][i];
    if (from) sum = from[i] + sum;
    for (int k = 1; k < terms.count; ++k) sum += terms.x[k][i];
    to[i] = sum;
  });
}

// Sums of many terms grow elsewhere and are written at last, as the output may be any of the inputs.
template <class T>
void forward(Call& call, gpu::Out<T> y) {
  const int inputs = call.inputs();
  Tensor scratch;
  if (inputs > kMost) scratch = gpu::workspace(call, dtype_of<T>(), call.out(0).shape());
  T* so_far = nullptr;
  for (int at = 0; at < inputs; at += kMost) {
    Terms<T> terms;
    for (int k = at; k < std::min(inputs, at + kMost); ++k) terms.x[terms.count++] = gpu::in_span<T>(call.in(k)).data;
    T* to = at + kMost < inputs ? gpu::out_span<T>(scratch).data : y.data;
    add<T>(call, y.size, so_far, terms, to);
    so_far = to;
  }
}

REGISTER(sum_cuda) {
  return cuda("Sum", forward<float>, forward<double>, forward<float16>, forward<bfloat16>, forward<int32_t>,
              forward<int64_t>);
}

// The extreme of the inputs from `begin` on. Y may be the first input, which the first launch has read.
template <class Before, class T>
void write_extreme(Call& call, int begin, gpu::Out<T> y) {
  for (int at = begin; at < call.inputs(); at += kMost) {
    Terms<T> terms;
    for (int k = at; k < std::min(call.inputs(), at + kMost); ++k)
      terms.x[terms.count++] = gpu::in_span<T>(call.in(k)).data;
    const T* so_far = at > begin ? y.data : nullptr;
    gpu::each(call, y.size, [=] __device__(size_t i) {
      T first = terms.x[0][i];
      for (int k = 1; k < terms.count; ++k) first = gpu::ExtremeOf<Before>()(first, terms.x[k][i]);
      y[i] = so_far ? gpu::ExtremeOf<Before>()(so_far[i], first) : first;
    });
  }
}

template <class Before, class T>
void extreme(Call& call, gpu::Out<T> y) {
  write_extreme<Before>(call, 0, y);
}

// Without Y it is computed into memory of its own.
template <class Before, class T>
void extreme_gradient(Call& call, gpu::In<T> given_y, gpu::In<T> dy) {
  Tensor computed;
  const T* y = given_y.data;
  if (!call.has(0)) {
    computed = gpu::workspace(call, dtype_of<T>(), call.in(1).shape());
    const auto span = gpu::out_span<T>(computed);
    write_extreme<Before>(call, 2, span);
    y = span.data;
  }
  for (int k = 0; k < call.outputs(); ++k) {
    if (!call.wants(k)) continue;
    const auto x = gpu::in_span<T>(call.in(2 + k));
    const auto dx = gpu::out_span<T>(call.out(k));
    gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = x[i] == y[i] ? dy[i] : T(0); });
  }
}

template <class Before>
Registration extremes(const char* type) {
  return cuda(type, extreme<Before, float>, extreme<Before, double>, extreme<Before, int32_t>,
              extreme<Before, int64_t>);
}
template <class Before>
Registration extreme_gradients(const char* type) {
  return cuda(type, extreme_gradient<Before, float>, extreme_gradient<Before, double>);
}

REGISTER(max_cuda) { return extremes<std::greater<>>("Max"); }
REGISTER(max_gradient_cuda) { return extreme_gradients<std::greater<>>("MaxGradient"); }
REGISTER(min_cuda) { return extremes<std::less<>>("Min"); }
REGISTER(min_gradient_cuda) { return extreme_gradients<std::less<>>("MinGradient"); }

}  // namespace
}  // namespace stepnet::gpu_sum
