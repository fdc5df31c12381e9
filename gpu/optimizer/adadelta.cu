// CUDA kernels for Adadelta and SparseAdadelta. Meaning: see operators/optimizer/adadelta.cc.
#include "operators/optimizer/adadelta.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_adadelta {
namespace {

template <class T>
void adadelta(const AdadeltaArgs& args, gpu::In<T> param, gpu::In<T> moment, gpu::In<T> delta, gpu::In<T> grad,
              const Tensor& lr, gpu::Out<T> new_param, gpu::Out<T> new_moment, gpu::Out<T> new_delta, Call& call) {
  const gpu::Scalar rate(lr);
  gpu::each(call, param.size, [=] __device__(size_t i) {
    adadelta_run(args, static_cast<T>(rate.value()), 1, grad.data + i, param.data + i, moment.data + i, delta.data + i,
                 new_param.data + i, new_moment.data + i, new_delta.data + i);
  });
}

// Table and moments are in place: the outputs hold their values.
template <class T>
void sparse_adadelta(const AdadeltaArgs& args, gpu::Out<T> param, gpu::Out<T> moment, gpu::Out<T> delta, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(4));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  gpu::for_each_row(call, call.in(3), table[0], row, gpu::RateOf<T>{gpu::Scalar(call.in(5))},
                    [=] __device__(T rate, int64_t k, int64_t at, int64_t column) {
                      T* const p = param.data + at * row + column;
                      T* const h = moment.data + at * row + column;
                      T* const d = delta.data + at * row + column;
                      adadelta_run(args, rate, 1, grad.data + k * row + column, p, h, d, p, h, d);
                    });
}

REGISTER(adadelta_cuda) { return cuda<AdadeltaArgs>("Adadelta", adadelta<float>, adadelta<double>); }
REGISTER(sparse_adadelta_cuda) {
  return cuda<AdadeltaArgs>("SparseAdadelta", sparse_adadelta<float>, sparse_adadelta<double>);
}

}  // namespace
}  // namespace stepnet::gpu_adadelta
