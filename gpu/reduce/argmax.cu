// CUDA kernel for ArgMax. Meaning: see operators/reduce/argmax.cc.
#include "operators/reduce/argmax.h"

#include "gpu/loops/greatest.h"

namespace stepnet::gpu_argmax {
namespace {

template <class T>
struct GreatestOfLine {
  OneAxis axis;
  gpu::In<T> x;
  gpu::Out<int64_t> y;

  template <class Worker>
  __device__ void operator()(size_t line, const Worker& worker) const {
    const T* const first = x.data + axis.first(static_cast<int64_t>(line));
    const gpu::Candidate<T> best = gpu::next_greatest(first, static_cast<size_t>(axis.size),
                                                      static_cast<size_t>(axis.inner), gpu::Candidate<T>(), worker);
    if (worker.thread == 0) y[line] = best.index;
  }
};

template <class T>
void forward(const ArgMaxArgs& a, gpu::In<T> x, gpu::Out<int64_t> y, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  gpu::each_line(call, axis, GreatestOfLine<T>{axis, x, y});
}

REGISTER(argmax_cuda) {
  return cuda<ArgMaxArgs>("ArgMax", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_argmax
