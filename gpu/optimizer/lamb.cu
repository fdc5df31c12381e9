// CUDA kernels for Lamb. Meaning: see operators/optimizer/lamb.cc.
#include "operators/optimizer/lamb.h"

#include "gpu/loops/reduce.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_lamb {
namespace {

// The step's numbers follow from iter and lr, which are on the device: every thread works them out.
template <class T>
struct StepOf {
  LambArgs args;
  gpu::Scalar lr, iter;

  __device__ bool is_valid() const { return iter.value() >= 0; }
  __device__ LambStep<T> operator()() const { return LambStep<T>(args, lr.value(), iter.value()); }
};

template <class T>
void update(const LambArgs& args, gpu::In<T> param, gpu::In<T> m1, gpu::In<T> m2, gpu::In<T> grad, const Tensor& lr,
            const Tensor& iter, gpu::Out<T> new_param, gpu::Out<T> new_m1, gpu::Out<T> new_m2, Call& call) {
  const StepOf<T> start{args, gpu::Scalar(lr), gpu::Scalar(iter)};
  const gpu::Bounds bounds = gpu::bounds(call, "iter");
  gpu::each(call, param.size, [=] __device__(size_t i) {
    if (!start.is_valid()) return bounds.report(static_cast<int64_t>(start.iter.value()), INT64_MAX);
    const LambStep<T> step = start();
    new_m1[i] = step.mean(m1[i], grad[i]);
    new_m2[i] = step.mean_square(m2[i], grad[i]);
  });
  const gpu::Temporary<double> both(call, 2);
  double* const squares = both.data;
  gpu::reduce(
      call, {2, static_cast<int64_t>(param.size), 1}, 0.0,
      [=] __device__(size_t which, size_t i, size_t) {
        const auto x = static_cast<double>(which == 0 ? param[i] : start().direction(new_m1[i], new_m2[i], param[i]));
        return x * x;
      },
      std::plus<double>(), [=] __device__(size_t which, size_t, double sum) { squares[which] = sum; });
  gpu::each(call, param.size, [=] __device__(size_t i) {
    if (!start.is_valid()) return;
    const LambStep<T> step = start();
    new_param[i] = param[i] + step.rate(squares[0], squares[1]) * step.direction(new_m1[i], new_m2[i], param[i]);
  });
}

REGISTER(lamb_cuda) { return cuda<LambArgs>("Lamb", update<float>, update<double>); }

}  // namespace
}  // namespace stepnet::gpu_lamb
