// CUDA kernels for NAdam. Meaning: see operators/optimizer/nadam.cc.
#include "operators/optimizer/nadam.h"

#include "gpu/loops/scalar.h"

namespace stepnet::gpu_nadam {
namespace {

// The step's numbers follow from what is on the device: every thread works them out. The product may be written over
// the old one, so a second kernel does that.
template <class T>
void update(const NAdamArgs& args, gpu::In<T> param, gpu::In<T> m1, gpu::In<T> m2, gpu::In<T> product, gpu::In<T> grad,
            const Tensor& lr, const Tensor& iter, gpu::Out<T> new_param, gpu::Out<T> new_m1, gpu::Out<T> new_m2,
            gpu::Out<T> new_product, Call& call) {
  const gpu::Scalar rate(lr), at(iter);
  const gpu::Bounds bounds = gpu::bounds(call, "iter");
  gpu::each(call, param.size, [=] __device__(size_t i) {
    const double t = at.value();
    if (t < 0) return bounds.report(static_cast<int64_t>(t), INT64_MAX);
    const NAdamStep<T> step(args, rate.value(), t, static_cast<double>(product[0]));
    step(1, grad.data + i, param.data + i, m1.data + i, m2.data + i, new_param.data + i, new_m1.data + i,
         new_m2.data + i);
  });
  gpu::each(call, 1, [=] __device__(size_t) {
    const double t = at.value();
    if (t < 0) return bounds.report(static_cast<int64_t>(t), INT64_MAX);
    new_product[0] = static_cast<T>(NAdamStep<T>(args, rate.value(), t, static_cast<double>(product[0])).product);
  });
}

REGISTER(nadam_cuda) { return cuda<NAdamArgs>("NAdam", update<float>, update<double>); }

}  // namespace
}  // namespace stepnet::gpu_nadam
