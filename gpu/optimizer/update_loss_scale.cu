// CUDA kernel for UpdateLossScale. Meaning: see operators/optimizer/update_loss_scale.cc.
#include "operators/optimizer/update_loss_scale.h"

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_update_loss_scale {
namespace {

template <class T>
void update(const LossScaleArgs& args, gpu::In<T> scale, gpu::In<int32_t> good_steps, gpu::In<bool> finite,
            gpu::Out<T> new_scale, gpu::Out<int32_t> new_steps, Call& call) {
  gpu::each(call, 1, [=] __device__(size_t) {
    const LossScale<T> next = updated_scale(LossScale<T>{scale[0], good_steps[0]}, finite[0], args);
    new_scale[0] = next.scale;
    new_steps[0] = next.good_steps;
  });
}

REGISTER(update_loss_scale_cuda) { return cuda<LossScaleArgs>("UpdateLossScale", update<float>, update<double>); }

}  // namespace
}  // namespace stepnet::gpu_update_loss_scale
