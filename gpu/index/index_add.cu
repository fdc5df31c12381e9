// CUDA kernels for IndexAdd and its gradient. Meaning and derivatives: see operators/index/index_add.cc.
#include "operators/index/index_add.h"

#include "gpu/loops/indexed_slices.h"

namespace stepnet::gpu_index_add {
namespace {

template <class T>
void forward(const IndexAddArgs& args, gpu::In<T>, const Tensor& indices, gpu::In<T> source, gpu::Out<T> y,
             Call& call) {
  copy_values(call.in(0), call.out(0));
  gpu::add_slices(call, gpu::Indices(indices), one_axis(args, call.in(0).shape()), source.data, y.data);
}

template <class T>
void gradient(const IndexAddArgs& args, const Tensor& indices, gpu::In<T>, gpu::Out<T>, Call& call) {
  gpu::gather_slices(call, gpu::Indices(indices), one_axis(args, call.in(1).shape()), call.in(1), call.out(0));
}

REGISTER(index_add_cuda) {
  return cuda<IndexAddArgs>("IndexAdd", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}
REGISTER(index_add_gradient_cuda) { return cuda<IndexAddArgs>("IndexAddGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_index_add
