// CUDA kernel for AddBMM. Meaning and derivatives: see operators/products/add_bmm.cc.
#include "gpu/loops/added_product.h"
#include "gpu/loops/temporary.h"

namespace stepnet::gpu_add_bmm {
namespace {

// A_0 to A_last side by side, [rows, batch * inner]: times B_0 to B_last one below the other, which is how they are
// stored, it is the sum of all products.
template <class T>
void lay_side_by_side(const Call& call, const BatchProduct& p, const T* a, T* wide) {
  const size_t rows = static_cast<size_t>(p.rows), inner = static_cast<size_t>(p.inner);
  const size_t batch = static_cast<size_t>(p.batch);
  gpu::each(call, rows * batch * inner, [=] __device__(size_t i) {
    const size_t row = i / inner / batch, matrix = i / inner % batch;
    wide[i] = a[(matrix * rows + row) * inner + i % inner];
  });
}

template <class T>
void forward(const AddedArgs& args, gpu::In<T> m, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> y, Call& call) {
  const BatchProduct p = batch_product(call.in(1).shape(), call.in(2).shape());
  const T* left = a.data;
  Tensor wide;
  if (p.batch > 1) {
    wide = gpu::workspace(call, dtype_of<T>(), call.in(1).shape());
    lay_side_by_side(call, p, a.data, reinterpret_cast<T*>(wide.raw()));
    left = reinterpret_cast<const T*>(wide.raw());
  }
  gpu::matmul(call, {.m = p.rows, .n = p.columns, .k = p.batch * p.inner}, left, b.data, y.data);
  gpu::blend(args, m, y, call);
}

REGISTER(add_bmm_cuda) { return cuda<AddedArgs>("AddBMM", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_add_bmm
