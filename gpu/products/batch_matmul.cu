// CUDA kernel for BatchMatMul. Meaning and derivatives: see operators/products/batch_matmul.cc.
#include "operators/products/batch_matmul.h"

#include "gpu/loops/matmul.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_batch_matmul {
namespace {

template <class T>
void forward(const BatchMatmulArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> y, Call& call) {
  const Shape &shape_a = call.in(0).shape(), &shape_b = call.in(1).shape();
  const MatrixSizes x = batch_matrix(shape_a, args.trans_a), z = batch_matrix(shape_b, args.trans_b);
  const int64_t size_a = x.rows * x.columns, size_b = z.rows * z.columns, size_y = x.rows * z.columns;
  BroadcastRuns(batches_of(args, shape_a, shape_b)).each([&](const BroadcastRun& run) {
    gpu::matmul(call,
                {.trans_a = args.trans_a,
                 .trans_b = args.trans_b,
                 .m = x.rows,
                 .n = z.columns,
                 .k = x.columns,
                 .accumulate = call.accumulates(0),
                 .batch = run.size,
                 .stride_a = run.a_moves ? size_a : 0,
                 .stride_b = run.b_moves ? size_b : 0,
                 .stride_c = size_y},
                a.data + run.a * size_a, b.data + run.b * size_b, y.data + run.out * size_y);
  });
}

REGISTER(batch_matmul_cuda) {
  return cuda<BatchMatmulArgs>("BatchMatMul", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_batch_matmul
