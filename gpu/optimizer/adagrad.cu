// CUDA kernel for Adagrad. Meaning: see operators/optimizer/adagrad.cc.
#include "operators/optimizer/adagrad.h"

#include "gpu/loops/scalar.h"

namespace stepnet::gpu_adagrad {
namespace {

template <class T>
void adagrad(const AdagradArgs& args, gpu::In<T> param, gpu::In<T> moment, gpu::In<T> grad, const Tensor& lr,
             gpu::Out<T> new_param, gpu::Out<T> new_moment, Call& call) {
  const gpu::Scalar rate(lr);
  gpu::each(call, param.size, [=] __device__(size_t i) {
    adagrad_run(args, static_cast<T>(rate.value()), 1, grad.data + i, param.data + i, moment.data + i,
                new_param.data + i, new_moment.data + i);
  });
}

REGISTER(adagrad_cuda) { return cuda<AdagradArgs>("Adagrad", adagrad<float>, adagrad<double>); }

}  // namespace
}  // namespace stepnet::gpu_adagrad
