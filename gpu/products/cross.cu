// CUDA kernel for Cross. Meaning and derivatives: see operators/products/cross.cc.
#include "operators/products/cross.h"

#include "gpu/runtime/launch.h"
#include "operators/loops/one_axis.h"

namespace stepnet::gpu_cross {
namespace {

template <class T>
void forward(const CrossArgs& args, gpu::In<T> a, gpu::In<T> b, gpu::Out<T> c, Call& call) {
  const OneAxis axis = one_axis(args, call.in(0).shape());
  const size_t step = static_cast<size_t>(axis.inner);
  gpu::each(call, static_cast<size_t>(axis.lines()), [=] __device__(size_t line) {
    const size_t first = line / step * 3 * step + line % step;
    const T *x = a.data + first, *y = b.data + first;
    T* z = c.data + first;
    z[0] = x[step] * y[2 * step] - x[2 * step] * y[step];
    z[step] = x[2 * step] * y[0] - x[0] * y[2 * step];
    z[2 * step] = x[0] * y[step] - x[step] * y[0];
  });
}

REGISTER(cross_cuda) { return cuda<CrossArgs>("Cross", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_cross
