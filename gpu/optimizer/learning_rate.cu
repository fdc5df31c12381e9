// CUDA kernel for LearningRate. Meaning: see operators/optimizer/learning_rate.cc.
#include "operators/optimizer/learning_rate.h"

#include "gpu/loops/scalar.h"

namespace stepnet::gpu_learning_rate {
namespace {

static_assert(sizeof(RateSchedule) < 4000, "a kernel takes 4 kB of arguments");

// A negative iteration is noted, and counts as the first.
void learning_rate(const RateArgs& args, const Tensor& iter, Tensor& rate, Call& call) {
  const RateSchedule schedule = plan_rate(args);
  const gpu::Scalar counter(iter);
  const gpu::Out<float> out = gpu::out_span<float>(rate);
  const gpu::Bounds bounds = gpu::bounds(call, "iter");
  gpu::each(call, out.size, [=] __device__(size_t i) {
    const auto at = static_cast<int64_t>(counter.value());
    if (at < 0) bounds.report(at, INT64_MAX);
    out[i] = static_cast<float>(rate_at(schedule, at < 0 ? 0 : at));
  });
}

REGISTER(learning_rate_cuda) { return cuda<RateArgs>("LearningRate", learning_rate); }

}  // namespace
}  // namespace stepnet::gpu_learning_rate
