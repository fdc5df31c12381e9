// CUDA kernels for BatchGather and its gradient. Meaning and derivatives: see operators/index/batch_gather.cc.
#include "gpu/loops/indexed_slices.h"

namespace stepnet::gpu_batch_gather {
namespace {

// Tables of rows beside each other.
OneAxis tables_of(const Shape& data) { return {data[0], data[1], data.size_between(2, data.rank())}; }

void gather(Call& call) {
  gpu::gather_slices(call, gpu::Indices(call.in(1)), tables_of(call.in(0).shape()), call.in(0), call.out(0));
}

template <class T>
void scatter(const Tensor&, const Tensor& indices, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  call.out(0).fill_zero();
  gpu::add_slices(call, gpu::Indices(indices), tables_of(call.out(0).shape()), dy.data, dx.data);
}

REGISTER(batch_gather_cuda) { return cuda("BatchGather", gather); }
REGISTER(batch_gather_gradient_cuda) { return cuda("BatchGatherGradient", scatter<float>, scatter<double>); }

}  // namespace
}  // namespace stepnet::gpu_batch_gather
