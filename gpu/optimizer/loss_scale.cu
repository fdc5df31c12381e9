// CUDA kernels for UnscaleGradients and UpdateLossScale. Meaning: see operators/optimizer/loss_scale.cc.
#include "operators/optimizer/loss_scale.h"

#include "gpu/loops/scalar.h"
#include "gpu/runtime/launch.h"
#include "stepnet/half.h"

namespace stepnet::gpu_loss_scale {
namespace {

// Threads that find an element that is not finite all write the same.
template <class T>
void divide(const Call& call, const gpu::Scalar& scale, const Tensor& from, Tensor& to, bool* finite) {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto x = gpu::in_span<T>(from);
  const auto y = gpu::out_span<T>(to);
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const auto value = static_cast<Real>(x[i]);
    if (!isfinite(value)) *finite = false;
    y[i] = static_cast<T>(value * static_cast<Real>(1 / scale.value()));
  });
}

void unscale(Call& call) {
  const gpu::Scalar scale(call.in(0));
  bool* finite = gpu::out_span<bool>(call.out(0)).data;
  gpu::each(call, 1, [=] __device__(size_t) { *finite = true; });
  for (int i = 1; i < call.inputs(); ++i) {
    const auto divide_all = [&](auto zero) { divide<decltype(zero)>(call, scale, call.in(i), call.out(i), finite); };
    if (with_half(call.in(i).dtype(), divide_all)) continue;
    call.in(i).dtype() == DType::float64 ? divide_all(double{}) : divide_all(float{});
  }
}

REGISTER(unscale_gradients_cuda) { return cuda("UnscaleGradients", unscale); }

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
}  // namespace stepnet::gpu_loss_scale
