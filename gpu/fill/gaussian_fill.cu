// CUDA kernel for GaussianFill. Meaning and derivative: see operators/fill/gaussian_fill.cc.
#include "operators/fill/gaussian_fill.h"

#include "gpu/loops/random_fill.h"

namespace stepnet::gpu_gaussian_fill {
namespace {

void fill(const GaussianArgs& args, Call& call) { gpu::fill_normal(call, args.mean, args.std, call.out(0)); }

REGISTER(gaussian_fill_cuda) { return cuda<GaussianArgs>("GaussianFill", fill); }

}  // namespace
}  // namespace stepnet::gpu_gaussian_fill
