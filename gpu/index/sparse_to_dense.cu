// CUDA kernel for SparseToDense. Meaning and derivative: see operators/index/sparse_to_dense.cc.
#include "gpu/loops/indexed_slices.h"

namespace stepnet::gpu_sparse_to_dense {
namespace {

template <class T>
void scatter(const Tensor& indices, gpu::In<T> values, gpu::Out<T> y, Call& call) {
  const Shape& shape = call.out(0).shape();
  call.out(0).fill_zero();
  gpu::add_slices(call, gpu::Indices(indices), {1, shape[0], shape.size_between(1, shape.rank())}, values.data, y.data);
}

REGISTER(sparse_to_dense_cuda) {
  return cuda("SparseToDense", scatter<float>, scatter<double>, scatter<int32_t>, scatter<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_sparse_to_dense
