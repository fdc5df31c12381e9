// CUDA kernel for Sqrt. Meaning and derivative: see operators/sqrt.cc.
#include "gpu/launch.h"

namespace stepnet::gpu_sqrt {
namespace {

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = sqrt(x[i]); });
}

REGISTER(sqrt_cuda) { return cuda("Sqrt", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_sqrt
