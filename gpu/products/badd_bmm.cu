// CUDA kernel for BAddBMM. Meaning and derivatives: see operators/products/badd_bmm.cc.
#include "gpu/loops/added_product.h"

namespace stepnet::gpu_badd_bmm {
namespace {

template <class T>
void forward(const AddedArgs& args, gpu::In<T> m, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> y, Call& call) {
  const BatchProduct p = batch_product(call.in(1).shape(), call.in(2).shape());
  gpu::matmul(call,
              {.m = p.rows,
               .n = p.columns,
               .k = p.inner,
               .batch = p.batch,
               .stride_a = p.rows * p.inner,
               .stride_b = p.inner * p.columns,
               .stride_c = p.rows * p.columns},
              a.data, b.data, y.data);
  gpu::blend(args, m, y, call);
}

REGISTER(badd_bmm_cuda) { return cuda<AddedArgs>("BAddBMM", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_badd_bmm
