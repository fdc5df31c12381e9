// CUDA kernel for AddCDiv. Meaning and derivative: see operators/pointwise/add_cdiv.cc.
#include <functional>

#include "gpu/loops/add_c.h"

namespace stepnet::gpu_add_cdiv {
namespace {

template <class T>
void forward(const AddCArgs& args, gpu::In<T> t, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  gpu::add_combined(call, args, t, a, b, c, std::divides<T>());
}

REGISTER(add_cdiv_cuda) { return cuda<AddCArgs>("AddCDiv", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_add_cdiv
