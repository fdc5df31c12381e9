// CUDA kernels for FMod and TruncDiv. Meaning and derivative: see operators/pointwise/fmod.cc.
#include "operators/pointwise/fmod.h"

#include "gpu/loops/division.h"

namespace stepnet::gpu_fmod {
namespace {

template <class T>
void forward(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::divide<Remainder<T>>(args, a, b, c, call);
}

template <class T>
void quotient(const BroadcastArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::divide<WholeQuotient<T>>(args, a, b, c, call);
}

REGISTER(fmod_cuda) {
  return cuda<BroadcastArgs>("FMod", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}
REGISTER(trunc_div_cuda) { return cuda<BroadcastArgs>("TruncDiv", quotient<float>, quotient<double>); }

}  // namespace
}  // namespace stepnet::gpu_fmod
