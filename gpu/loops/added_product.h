// What operators of the form Y = beta M + alpha P share on a GPU. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/matmul.h"
#include "gpu/runtime/launch.h"
#include "operators/products/added_sizes.h"

namespace stepnet::gpu {

// y = alpha y + beta m, where y is the product. With a beta of 0, m is not read.
template <class T>
void blend(const AddedArgs& args, In<T> m, Out<T> y, const Call& call) {
  const T alpha = static_cast<T>(args.alpha), beta = static_cast<T>(args.beta);
  each(call, y.size, [=] __device__(size_t i) { y[i] = (beta == T(0) ? T(0) : beta * m[i]) + alpha * y[i]; });
}

}  // namespace stepnet::gpu
