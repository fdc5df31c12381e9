// CUDA kernel for GT. Meaning and derivative: see operators/pointwise/gt.cc.
#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_gt {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<bool> c, Call& call) {
  gpu::binary<std::greater<T>>(args, a, b, c, call);
}

REGISTER(gt_cuda) {
  return cuda<BroadcastArgs>("GT", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_gt
