// CUDA kernel for ClipTensorByScaling. Meaning: see operators/optimizer/clip_tensor_by_scaling.cc.
#include "operators/optimizer/clip_tensor_by_scaling.h"

#include "gpu/loops/scalar.h"

namespace stepnet::gpu_clip_tensor_by_scaling {
namespace {

// y may be x. A negative threshold is noted, and clips nothing.
template <class T>
void clip(const ScalingClipArgs& args, gpu::In<T> x, const Tensor& val, gpu::Out<T> y, Call& call) {
  const gpu::Scalar value(val), more(call.has(2) ? call.in(2) : Tensor::scalar(1.0f));
  const gpu::Bounds bounds = gpu::bounds(call, "additional_threshold");
  const double threshold = args.threshold;
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const double limit = threshold * more.value(), v = value.value();
    if (!(limit >= 0)) bounds.report(static_cast<int64_t>(floor(more.value())), INT64_MAX);
    const T factor = limit >= 0 && v > limit ? static_cast<T>(limit / v) : T(1);
    y[i] = factor * x[i];
  });
}

REGISTER(clip_tensor_by_scaling_cuda) {
  return cuda<ScalingClipArgs>("ClipTensorByScaling", clip<float>, clip<double>);
}

}  // namespace
}  // namespace stepnet::gpu_clip_tensor_by_scaling
