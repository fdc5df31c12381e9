// CUDA kernel for AddR. Meaning and derivatives: see operators/products/add_r.cc.
#include "gpu/runtime/launch.h"
#include "operators/products/added_sizes.h"

namespace stepnet::gpu_add_r {
namespace {

template <class T>
void forward(const AddedArgs& args, gpu::In<T> m, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z, Call& call) {
  const T alpha = static_cast<T>(args.alpha), beta = static_cast<T>(args.beta);
  gpu::each(call, z.size, [=] __device__(size_t i) {
    z[i] = (beta == T(0) ? T(0) : beta * m[i]) + alpha * (x[i / y.size] * y[i % y.size]);
  });
}

REGISTER(add_r_cuda) { return cuda<AddedArgs>("AddR", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_add_r
