// CUDA kernel for MatMul. Meaning and derivatives: see operators/products/matmul.cc.
#include "operators/products/matmul.h"

#include "gpu/loops/matmul.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_matmul {
namespace {

template <class T>
void forward(const MatMulArgs& args, gpu::In<T> x, gpu::In<T> z, gpu::Out<T> y, Call& call) {
  const MatrixSizes a = flattened_matrix(call.in(0).shape(), args.axis_a, args.trans_a);
  const MatrixSizes b = flattened_matrix(call.in(1).shape(), args.axis_b, args.trans_b);
  gpu::matmul(call,
              {.trans_a = args.trans_a,
               .trans_b = args.trans_b,
               .m = a.rows,
               .n = b.columns,
               .k = a.columns,
               .accumulate = call.accumulates(0)},
              x.data, z.data, y.data);
}

REGISTER(matmul_cuda) {
  return cuda<MatMulArgs>("MatMul", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_matmul
