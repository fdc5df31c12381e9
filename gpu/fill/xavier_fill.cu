// CUDA kernel for XavierFill. Meaning and derivative: see operators/fill/xavier_fill.cc.
#include "gpu/loops/random_fill.h"

namespace stepnet::gpu_xavier_fill {
namespace {

void fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) gpu::fill_centred(call, xavier_limit(y.shape()), y);
}

REGISTER(xavier_fill_cuda) { return cuda<RandomFillArgs>("XavierFill", fill); }

}  // namespace
}  // namespace stepnet::gpu_xavier_fill
