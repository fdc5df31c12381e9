// CUDA kernels for Lamb. Meaning: see operators/optimizer/lamb.cc.
#include "operators/optimizer/lamb.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/reduce.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_lamb {
namespace {

// The step's numbers follow from iter and lr, which are on the device; a negative iteration is noted.
template <class T>
struct StepOf {
  LambArgs args;
  gpu::Scalar lr, iter;
  gpu::Bounds bounds;

  __device__ LambStep<T> operator()() const {
    const double t = iter.value();
    if (t < 0) bounds.report(static_cast<int64_t>(t), INT64_MAX);
    return LambStep<T>(args, lr.value(), t < 0 ? 0 : t);
  }
};

template <class T>
void update(const LambArgs& args, gpu::In<T> param, gpu::In<T> m1, gpu::In<T> m2, gpu::In<T> grad, const Tensor& lr,
            const Tensor& iter, gpu::Out<T> new_param, gpu::Out<T> new_m1, gpu::Out<T> new_m2, Call& call) {
  if (param.size == 0) return;
  const gpu::Scalar at(iter);
  const auto made = gpu::made_once(call, StepOf<T>{args, gpu::Scalar(lr), at, gpu::bounds(call, "iter")});
  const LambStep<T>* const step = made.data;
  gpu::each(call, param.size, [=] __device__(size_t i) {
    if (at.value() < 0) return;
    new_m1[i] = step->mean(m1[i], grad[i]);
    new_m2[i] = step->mean_square(m2[i], grad[i]);
  });
  const gpu::Temporary<double> both(call, 2);
  double* const squares = both.data;
  gpu::reduce(
      call, {2, static_cast<int64_t>(param.size), 1}, 0.0,
      [=] __device__(size_t which, size_t i, size_t) {
        const auto x = static_cast<double>(which == 0 ? param[i] : step->direction(new_m1[i], new_m2[i], param[i]));
        return x * x;
      },
      std::plus<double>(), [=] __device__(size_t which, size_t, double sum) { squares[which] = sum; });
  gpu::each(call, param.size, [=] __device__(size_t i) {
    if (at.value() < 0) return;
    new_param[i] = param[i] + step->rate(squares[0], squares[1]) * step->direction(new_m1[i], new_m2[i], param[i]);
  });
}

REGISTER(lamb_cuda) { return cuda<LambArgs>("Lamb", update<float>, update<double>); }

}  // namespace
}  // namespace stepnet::gpu_lamb
