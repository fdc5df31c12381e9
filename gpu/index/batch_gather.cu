// CUDA kernels for BatchGather and its gradient. Meaning and derivatives: see operators/index/batch_gather.cc.
#include "gpu/loops/gathered_rows.h"

namespace stepnet::gpu_batch_gather {
namespace {

void gather(const GatherArgs& args, Call& call) { gpu::gather_rows(call, args, call.in(0), call.in(1), call.out(0)); }

template <class T>
void scatter(const GatherArgs& args, const Tensor&, const Tensor& indices, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  call.out(0).fill_zero();
  gpu::scatter_rows(call, GatheredRows(args, call.out(0).shape(), indices.shape()), gpu::Indices(indices), dy, dx);
}

REGISTER(batch_gather_cuda) { return cuda<GatherArgs>("BatchGather", gather); }
REGISTER(batch_gather_gradient_cuda) {
  return cuda<GatherArgs>("BatchGatherGradient", scatter<float>, scatter<double>);
}

}  // namespace
}  // namespace stepnet::gpu_batch_gather
