// CUDA kernel for RmsProp. Meaning: see operators/optimizer/rms_prop.cc.
#include "operators/optimizer/rms_prop.h"

#include "gpu/loops/scalar.h"

namespace stepnet::gpu_rms_prop {
namespace {

template <class T>
void rms_prop(const RmsPropArgs& args, gpu::In<T> grad, gpu::In<T> mean_squares, gpu::In<T> mom, const Tensor& lr,
              gpu::Out<T> step, gpu::Out<T> new_mean_squares, gpu::Out<T> new_mom, Call& call) {
  const gpu::Scalar rate(lr);
  gpu::each(call, grad.size, [=] __device__(size_t i) {
    rms_prop_run(args, static_cast<T>(rate.value()), 1, grad.data + i, mean_squares.data + i, mom.data + i,
                 step.data + i, new_mean_squares.data + i, new_mom.data + i);
  });
}

REGISTER(rms_prop_cuda) { return cuda<RmsPropArgs>("RmsProp", rms_prop<float>, rms_prop<double>); }

}  // namespace
}  // namespace stepnet::gpu_rms_prop
