// CUDA kernels for NAdam. Meaning: see operators/optimizer/nadam.cc.
#include "operators/optimizer/nadam.h"

#include "gpu/loops/optimizer.h"

namespace stepnet::gpu_nadam {
namespace {

// The step's numbers follow from what is on the device; a negative iteration is noted.
template <class T>
struct StepOf {
  NAdamArgs args;
  gpu::Scalar lr, iter;
  const T* product;
  gpu::Bounds bounds;

  __device__ NAdamStep<T> operator()() const {
    const double t = iter.value();
    if (t < 0) bounds.report(static_cast<int64_t>(t), INT64_MAX);
    return NAdamStep<T>(args, lr.value(), t < 0 ? 0 : t, static_cast<double>(*product));
  }
};

template <class T>
void update(const NAdamArgs& args, gpu::In<T> param, gpu::In<T> m1, gpu::In<T> m2, gpu::In<T> product, gpu::In<T> grad,
            const Tensor& lr, const Tensor& iter, gpu::Out<T> new_param, gpu::Out<T> new_m1, gpu::Out<T> new_m2,
            gpu::Out<T> new_product, Call& call) {
  const gpu::Scalar at(iter);
  const auto made = gpu::made_once(call, StepOf<T>{args, gpu::Scalar(lr), at, product.data, gpu::bounds(call, "iter")});
  const NAdamStep<T>* const step = made.data;
  gpu::each(call, std::max<size_t>(param.size, 1), [=] __device__(size_t i) {
    if (at.value() < 0) return;
    if (i == 0) new_product[0] = static_cast<T>(step->product);
    if (i >= param.size) return;
    (*step)(1, grad.data + i, param.data + i, m1.data + i, m2.data + i, new_param.data + i, new_m1.data + i,
            new_m2.data + i);
  });
}

REGISTER(nadam_cuda) { return cuda<NAdamArgs>("NAdam", update<float>, update<double>); }

}  // namespace
}  // namespace stepnet::gpu_nadam
