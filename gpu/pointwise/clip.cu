// CUDA kernels for Clip and ClipGradient. Meaning and derivative: see operators/pointwise/clip.cc.
#include "operators/pointwise/clip.h"

#include "gpu/loops/elementwise.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_clip {
namespace {

// Limits are rounded to the element type, so that what is clipped equals them.

template <class T>
void forward(const ClipArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, ClipValue<gpu::Accumulate<T>>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

template <class T>
void gradient(const ClipArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, ClipSlope<gpu::Accumulate<T>>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

REGISTER(clip_cuda) {
  return cuda<ClipArgs>("Clip", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(clip_gradient_cuda) {
  return cuda<ClipArgs>("ClipGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_clip
