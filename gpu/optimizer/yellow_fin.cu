// CUDA kernel for YellowFin. Meaning: see operators/optimizer/yellow_fin.cc. The parameter comes first: it reads the
// rates as they were.
#include "operators/optimizer/yellow_fin.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/total.h"

namespace stepnet::gpu_yellow_fin {
namespace {

// The step's numbers; an iteration before the first is noted, and counts as the first.
template <class T>
struct StepOf {
  YellowFinArgs args;
  gpu::Scalar iter;
  gpu::Bounds bounds;

  __device__ YellowFin<T> operator()() const {
    const auto at = static_cast<int64_t>(iter.value());
    if (at < 1) bounds.report(at, INT64_MAX);
    return YellowFin<T>(args, at < 1 ? 1 : at);
  }
};

template <class T>
void yellow_fin(const YellowFinArgs& args, gpu::In<T> param, gpu::In<T> moment, gpu::In<T> lr, gpu::In<T> mu,
                gpu::In<T> window, gpu::In<T> g, gpu::In<T> g2, gpu::In<T> means, gpu::In<T> grad, const Tensor& iter,
                gpu::Out<T> new_param, gpu::Out<T> new_moment, gpu::Out<T> new_lr, gpu::Out<T> new_mu,
                gpu::Out<T> new_window, gpu::Out<T> new_g, gpu::Out<T> new_g2, gpu::Out<T> new_means, Call& call) {
  const auto made = gpu::made_once(call, StepOf<T>{args, gpu::Scalar(iter), gpu::bounds(call, "iter")});
  const YellowFin<T>* const step = made.data;
  gpu::each(call, param.size, [=] __device__(size_t i) {
    step->step(lr[0], mu[0], grad[i], param.data + i, moment.data + i, g.data + i, g2.data + i, new_param.data + i,
               new_moment.data + i, new_g.data + i, new_g2.data + i);
  });
  const gpu::Temporary<double> sum(call, 1);
  double* const squares = sum.data;
  gpu::total_squares(call, grad, [=] __device__(double all) { *squares = all; });
  const YellowFinState<T> state{lr.data,     mu.data,     window.data,     means.data,
                                new_lr.data, new_mu.data, new_window.data, new_means.data};
  gpu::total_squares(call, gpu::In<T>{{new_g.data, new_g.size}}, [=] __device__(double all) {
    step->tune(state, *squares, step->correction * step->correction * all);
  });
}

REGISTER(yellow_fin_cuda) { return cuda<YellowFinArgs>("YellowFin", yellow_fin<float>, yellow_fin<double>); }

}  // namespace
}  // namespace stepnet::gpu_yellow_fin
