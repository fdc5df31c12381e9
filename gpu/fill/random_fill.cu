// CUDA kernels for GaussianFill, XavierFill and MSRAFill. Meaning: see operators/fill/random_fill.cc.
#include "operators/fill/random_fill.h"

#include "gpu/loops/random_fill.h"

namespace stepnet::gpu_random_fill {
namespace {

void gaussian_fill(const GaussianArgs& args, Call& call) { gpu::fill_normal(call, args.mean, args.std, call.out(0)); }

REGISTER(gaussian_fill_cuda) { return cuda<GaussianArgs>("GaussianFill", gaussian_fill); }

void xavier_fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) gpu::fill_centred(call, xavier_limit(y.shape()), y);
}

REGISTER(xavier_fill_cuda) { return cuda<RandomFillArgs>("XavierFill", xavier_fill); }

void msra_fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) gpu::fill_normal(call, 0, msra_deviation(y.shape()), y);
}

REGISTER(msra_fill_cuda) { return cuda<RandomFillArgs>("MSRAFill", msra_fill); }

}  // namespace
}  // namespace stepnet::gpu_random_fill
