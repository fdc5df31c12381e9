// CUDA kernels for MatMul, BatchMatMul and MV. Meaning and derivatives: see operators/products/matmul.cc.
#include "operators/products/matmul.h"

#include "gpu/loops/matmul.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_matmul {
namespace {

template <class T>
void matmul_forward(const MatMulArgs& args, gpu::In<T> x, gpu::In<T> z, gpu::Out<T> y, Call& call) {
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
  return cuda<MatMulArgs>("MatMul", matmul_forward<float>, matmul_forward<double>, matmul_forward<float16>,
                          matmul_forward<bfloat16>);
}

template <class T>
void batch_matmul_forward(const BatchMatmulArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> y, Call& call) {
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
  return cuda<BatchMatmulArgs>("BatchMatMul", batch_matmul_forward<float>, batch_matmul_forward<double>,
                               batch_matmul_forward<float16>, batch_matmul_forward<bfloat16>);
}

template <class T>
void mv_forward(const MVArgs& args, gpu::In<T> a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const auto rows = static_cast<int64_t>(y.size), columns = static_cast<int64_t>(x.size);
  gpu::matmul(call, {.trans_a = args.trans, .m = rows, .n = 1, .k = columns}, a.data, x.data, y.data);
}

REGISTER(mv_cuda) { return cuda<MVArgs>("MV", mv_forward<float>, mv_forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_matmul
