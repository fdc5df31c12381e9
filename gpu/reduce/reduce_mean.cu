// CUDA kernels for ReduceMean and its gradient. Meaning and derivatives: see operators/reduce/reduce_mean.cc.
#include "gpu/loops/reduce_axes.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_reduce_mean {
namespace {

struct Divided {
  double by;
  constexpr double operator()(double sum) const { return sum / by; }
};

template <class T>
void forward(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const int64_t count = gpu::values_of_each(a, call.in(0).shape());
  const Divided mean{count == 0 ? 1.0 : static_cast<double>(count)};
  gpu::reduce_values(a, x, y, call, 0, gpu::Same(), std::plus<double>(), mean);
}

template <class T>
void gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const auto count = static_cast<gpu::Accumulate<T>>(gpu::values_of_each(a, call.in(1).shape()));
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[place.find(i)] / count; });
}

REGISTER(reduce_mean_cuda) {
  return cuda<ReduceArgs>("ReduceMean", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(reduce_mean_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceMeanGradient", gradient<float>, gradient<double>, gradient<float16>,
                          gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_reduce_mean
