// CUDA kernel for Sum. Meaning and derivative: see operators/reduce/sum.cc.
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

}  // namespace
}  // namespace stepnet::gpu_sum
