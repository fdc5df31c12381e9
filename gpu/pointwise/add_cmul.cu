// CUDA kernel for AddCMul. Meaning and derivative: see operators/pointwise/add_cmul.cc.
#include <functional>

#include "gpu/loops/add_c.h"

namespace stepnet::gpu_add_cmul {
namespace {

template <class T>
void forward(const AddCArgs& args, gpu::In<T> t, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::add_combined(call, args, t, a, b, c, std::multiplies<T>());
}

REGISTER(add_cmul_cuda) { return cuda<AddCArgs>("AddCMul", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_add_cmul
