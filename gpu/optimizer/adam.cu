// CUDA kernels for Adam and AdamW. Meaning: see operators/optimizer/adam.cc and operators/optimizer/adam_w.cc.
#include "operators/optimizer/adam.h"

#include "gpu/loops/scalar.h"

namespace stepnet::gpu_adam {
namespace {

// The rate follows from iter and lr, which are on the device: every thread works it out.
template <class T>
void update(const AdamArgs& args, gpu::In<T> param, gpu::In<T> m1, gpu::In<T> m2, gpu::In<T> grad, const Tensor& lr,
            const Tensor& iter, gpu::Out<T> new_param, gpu::Out<T> new_m1, gpu::Out<T> new_m2, Call& call) {
  const gpu::Scalar base(lr), at(iter);
  const gpu::Bounds bounds = gpu::bounds(call, "iter");
  gpu::each(call, param.size, [=] __device__(size_t i) {
    const double t = at.value();
    if (t < 0) return bounds.report(static_cast<int64_t>(t), INT64_MAX);
    const AdamStep<T> step(args, base.value(), t);
    step(1, grad.data + i, param.data + i, m1.data + i, m2.data + i, new_param.data + i, new_m1.data + i,
         new_m2.data + i);
  });
}

REGISTER(adam_cuda) { return cuda<AdamArgs>("Adam", update<float>, update<double>); }
REGISTER(adam_w_cuda) { return cuda<AdamArgs>("AdamW", update<float>, update<double>); }

}  // namespace
}  // namespace stepnet::gpu_adam
