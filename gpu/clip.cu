// CUDA kernels for Clip and ClipGradient. Meaning and derivative: see operators/clip.cc.
#include "operators/clip.h"

#include "gpu/elementwise.h"

namespace stepnet::gpu_clip {
namespace {

template <class T>
void forward(const ClipArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::map(call, x, y, ClipValue<T>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

template <class T>
void gradient(const ClipArgs& a, gpu::In<T> y, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  gpu::map(call, y, dy, dx, ClipSlope<T>{static_cast<T>(a.min), static_cast<T>(a.max)});
}

REGISTER(clip_cuda) { return cuda<ClipArgs>("Clip", forward<float>, forward<double>); }
REGISTER(clip_gradient_cuda) { return cuda<ClipArgs>("ClipGradient", gradient<float>, gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_clip
