// CUDA kernels for Where and Conditional. Meaning and derivative: see operators/pointwise/where.cc.
#include "operators/pointwise/where.h"

#include "gpu/runtime/launch.h"
#include "stepnet/half.h"

namespace stepnet::gpu_where {
namespace {

// The first In is X, so that the kernel is for elements of its type.
template <class T>
void forward(const WhereArgs&, const Tensor& condition, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z, Call& call) {
  const auto c = gpu::in_span<bool>(condition);
  const size_t block = c.size == 0 ? 1 : z.size / c.size;  // elements of one condition: 1, or a row
  gpu::each(call, z.size, [=] __device__(size_t i) { z[i] = c[i / block] ? x[i] : y[i]; });
}

REGISTER(where_cuda) {
  return cuda<WhereArgs>("Where", forward<float>, forward<double>, forward<float16>, forward<bfloat16>,
                         forward<int32_t>, forward<int64_t>, forward<bool>);
}

template <class T>
void conditional(const Tensor& condition, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z, Call& call) {
  forward(WhereArgs(), condition, x, y, z, call);
}

REGISTER(conditional_cuda) {
  return cuda("Conditional", conditional<float>, conditional<double>, conditional<float16>, conditional<bfloat16>,
              conditional<int32_t>, conditional<int64_t>, conditional<bool>);
}

}  // namespace
}  // namespace stepnet::gpu_where
