// CUDA kernel for Lars. Meaning: see operators/optimizer/lars.cc.
#include "operators/optimizer/lars.h"

#include "gpu/loops/scalar.h"
#include "gpu/loops/total.h"

namespace stepnet::gpu_lars {
namespace {

template <class T>
void add_squares(const Call& call, gpu::In<T> x, double* sum) {
  gpu::total_squares(call, x, [=] __device__(double all) { *sum = all; });
}

template <class T>
void rescale(const LarsArgs& args, gpu::In<T> x, gpu::In<T> dx, const Tensor& decay, const Tensor& trust,
             const Tensor& lr_max, gpu::Out<T> rate, Call& call) {
  const gpu::Temporary<double> sums(call, 2);
  double* const squares = sums.data;
  add_squares(call, x, squares);
  add_squares(call, dx, squares + 1);
  const gpu::Scalar wd(decay), trusted(trust), most(lr_max);
  gpu::each(call, 1, [=] __device__(size_t) {
    rate[0] =
        static_cast<T>(lars_rate(args, sqrt(squares[0]), sqrt(squares[1]), wd.value(), trusted.value(), most.value()));
  });
}

REGISTER(lars_cuda) { return cuda<LarsArgs>("Lars", rescale<float>, rescale<double>); }

}  // namespace
}  // namespace stepnet::gpu_lars
