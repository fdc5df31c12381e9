// CUDA kernel for MV. Meaning and derivatives: see operators/products/mv.cc.
#include "operators/products/mv.h"

#include "gpu/loops/matmul.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_mv {
namespace {

template <class T>
void forward(const MVArgs& args, gpu::In<T> a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const auto rows = static_cast<int64_t>(y.size), columns = static_cast<int64_t>(x.size);
  gpu::matmul(call, {.trans_a = args.trans, .m = rows, .n = 1, .k = columns}, a.data, x.data, y.data);
}

REGISTER(mv_cuda) { return cuda<MVArgs>("MV", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_mv
