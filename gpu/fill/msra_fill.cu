// CUDA kernel for MSRAFill. Meaning and derivative: see operators/fill/msra_fill.cc.
#include "gpu/loops/random_fill.h"

namespace stepnet::gpu_msra_fill {
namespace {

void fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) gpu::fill_normal(call, 0, msra_deviation(y.shape()), y);
}

REGISTER(msra_fill_cuda) { return cuda<RandomFillArgs>("MSRAFill", fill); }

}  // namespace
}  // namespace stepnet::gpu_msra_fill
