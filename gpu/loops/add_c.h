// What the kernels of AddCMul and AddCDiv share. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"
#include "operators/pointwise/add_c_args.h"

namespace stepnet::gpu {

// c[i] = t[i] + value fn(a[i], b[i]). Each element is read before it is written, so that c may be any of the inputs.
template <class T, class Fn>
void add_combined(const Call& call, const AddCArgs& args, In<T> t, In<T> a, In<T> b, Out<T> c, Fn fn) {
  const T value = static_cast<T>(args.value);
  each(call, c.size, [=] __device__(size_t i) { c[i] = t[i] + value * fn(a[i], b[i]); });
}

}  // namespace stepnet::gpu
