// CUDA kernels for AddCMul and AddCDiv. Meaning and derivatives: see operators/pointwise/add_c.cc.
#include "operators/pointwise/add_c.h"

#include <functional>

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_add_c {
namespace {

// c[i] = t[i] + value fn(a[i], b[i]). Each element is read before it is written, so that c may be any of the inputs.
template <class T, class Fn>
void add_combined(const Call& call, const AddCArgs& args, gpu::In<T> t, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c,
                  Fn fn) {
  const T value = static_cast<T>(args.value);
  gpu::each(call, c.size, [=] __device__(size_t i) { c[i] = t[i] + value * fn(a[i], b[i]); });
}

template <class T>
void add_product(const AddCArgs& args, gpu::In<T> t, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  add_combined(call, args, t, a, b, c, std::multiplies<T>());
}

REGISTER(add_cmul_cuda) { return cuda<AddCArgs>("AddCMul", add_product<float>, add_product<double>); }

template <class T>
void add_quotient(const AddCArgs& args, gpu::In<T> t, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  add_combined(call, args, t, a, b, c, std::divides<T>());
}

REGISTER(add_cdiv_cuda) { return cuda<AddCArgs>("AddCDiv", add_quotient<float>, add_quotient<double>); }

}  // namespace
}  // namespace stepnet::gpu_add_c
