// CUDA kernels for AddMV, AddR, Ger, AddBMM and BAddBMM. Meaning and derivatives: see
// operators/products/added_product.cc.
#include "operators/products/added_product.h"

#include "gpu/loops/matmul.h"
#include "gpu/loops/temporary.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_added_product {
namespace {

// y = alpha y + beta m, where y is the product. With a beta of 0, m is not read.
template <class T>
void blend(const AddedArgs& args, gpu::In<T> m, gpu::Out<T> y, const Call& call) {
  const T alpha = static_cast<T>(args.alpha), beta = static_cast<T>(args.beta);
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = (beta == T(0) ? T(0) : beta * m[i]) + alpha * y[i]; });
}

template <class T>
void add_mv_forward(const AddedArgs& args, gpu::In<T> v, gpu::In<T> a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::matmul(call, {.m = static_cast<int64_t>(y.size), .n = 1, .k = static_cast<int64_t>(x.size)}, a.data, x.data,
              y.data);
  blend(args, v, y, call);
}

REGISTER(add_mv_cuda) { return cuda<AddedArgs>("AddMV", add_mv_forward<float>, add_mv_forward<double>); }

template <class T>
void add_r_forward(const AddedArgs& args, gpu::In<T> m, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z, Call& call) {
  const T alpha = static_cast<T>(args.alpha), beta = static_cast<T>(args.beta);
  const gpu::Divider rows(y.size);
  gpu::each(call, z.size, [=] __device__(size_t i) {
    const auto [row, column] = rows.split(i);
    z[i] = (beta == T(0) ? T(0) : beta * m[i]) + alpha * (x[row] * y[column]);
  });
}

REGISTER(add_r_cuda) { return cuda<AddedArgs>("AddR", add_r_forward<float>, add_r_forward<double>); }

template <class T>
void ger_forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z) {
  const gpu::Divider rows(y.size);
  gpu::each(call, z.size, [=] __device__(size_t i) {
    const auto [row, column] = rows.split(i);
    z[i] = x[row] * y[column];
  });
}

REGISTER(ger_cuda) { return cuda("Ger", ger_forward<float>, ger_forward<double>); }

// A_0 to A_last side by side, [rows, batch * inner]: times B_0 to B_last one below the other, which is how they are
// stored, it is the sum of all products.
template <class T>
void lay_side_by_side(const Call& call, const BatchProduct& p, const T* a, T* wide) {
  const size_t rows = static_cast<size_t>(p.rows), inner = static_cast<size_t>(p.inner);
  const size_t batch = static_cast<size_t>(p.batch);
  const gpu::Divider by_inner(inner), by_batch(batch);
  gpu::each(call, rows * batch * inner, [=] __device__(size_t i) {
    const auto [line, column] = by_inner.split(i);
    const auto [row, matrix] = by_batch.split(line);
    wide[i] = a[(matrix * rows + row) * inner + column];
  });
}

template <class T>
void add_bmm_forward(const AddedArgs& args, gpu::In<T> m, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> y, Call& call) {
  const BatchProduct p = batch_product(call.in(1).shape(), call.in(2).shape());
  const T* left = a.data;
  Tensor wide;
  if (p.batch > 1) {
    wide = gpu::workspace(call, dtype_of<T>(), call.in(1).shape());
    lay_side_by_side(call, p, a.data, reinterpret_cast<T*>(wide.raw()));
    left = reinterpret_cast<const T*>(wide.raw());
  }
  gpu::matmul(call, {.m = p.rows, .n = p.columns, .k = p.batch * p.inner}, left, b.data, y.data);
  blend(args, m, y, call);
}

REGISTER(add_bmm_cuda) { return cuda<AddedArgs>("AddBMM", add_bmm_forward<float>, add_bmm_forward<double>); }

template <class T>
void badd_bmm_forward(const AddedArgs& args, gpu::In<T> m, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> y, Call& call) {
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
  blend(args, m, y, call);
}

REGISTER(badd_bmm_cuda) { return cuda<AddedArgs>("BAddBMM", badd_bmm_forward<float>, badd_bmm_forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_added_product
