// CUDA kernel for AddMV. Meaning and derivatives: see operators/products/add_mv.cc.
#include "gpu/loops/added_product.h"

namespace stepnet::gpu_add_mv {
namespace {

template <class T>
void forward(const AddedArgs& args, gpu::In<T> v, gpu::In<T> a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::matmul(call, {.m = static_cast<int64_t>(y.size), .n = 1, .k = static_cast<int64_t>(x.size)}, a.data, x.data,
              y.data);
  gpu::blend(args, v, y, call);
}

REGISTER(add_mv_cuda) { return cuda<AddedArgs>("AddMV", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_add_mv
