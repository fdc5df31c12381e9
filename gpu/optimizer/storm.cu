// CUDA kernels for Storm and SparseStorm. Meaning: see operators/optimizer/storm.cc. The sum of squares comes first:
// the steps read it.
#include "operators/optimizer/storm.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/total.h"

namespace stepnet::gpu_storm {
namespace {

template <class T>
void add_squares(const Call& call, gpu::In<T> grad, const T* before, T* sum) {
  gpu::total_squares(call, grad,
                     [=] __device__(double squares) { *sum = static_cast<T>(static_cast<double>(*before) + squares); });
}

template <class T>
struct StepOf {
  StormArgs args;
  gpu::Scalar lr;
  const T* sum;
  __device__ StormStep<T> operator()() const { return {args, lr.value(), static_cast<double>(*sum)}; }
};

template <class T>
void storm(const StormArgs& args, gpu::In<T> param, gpu::In<T> moment, gpu::In<T> before, gpu::In<T> grad,
           const Tensor& lr, gpu::Out<T> new_param, gpu::Out<T> new_moment, gpu::Out<T> sum, Call& call) {
  add_squares(call, grad, before.data, sum.data);
  const auto made = gpu::made_once(call, StepOf<T>{args, gpu::Scalar(lr), sum.data});
  const StormStep<T>* const step = made.data;
  gpu::each(call, param.size, [=] __device__(size_t i) {
    (*step)(grad[i], param.data + i, moment.data + i, new_param.data + i, new_moment.data + i);
  });
}

// Table, moment and sum are in place: the outputs hold their values.
template <class T>
void sparse_storm(const StormArgs& args, gpu::Out<T> param, gpu::Out<T> moment, gpu::Out<T> sum, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  add_squares(call, grad, sum.data, sum.data);
  const auto made = gpu::made_once(call, StepOf<T>{args, gpu::Scalar(call.in(5)), sum.data});
  gpu::for_each_row(call, call.in(4), table[0], row, gpu::read_of(made),
                    [=] __device__(const StormStep<T>& step, int64_t k, int64_t at, int64_t column) {
                      T* const p = param.data + at * row + column;
                      T* const m = moment.data + at * row + column;
                      step(grad.data[k * row + column], p, m, p, m);
                    });
}

REGISTER(storm_cuda) { return cuda<StormArgs>("Storm", storm<float>, storm<double>); }
REGISTER(sparse_storm_cuda) { return cuda<StormArgs>("SparseStorm", sparse_storm<float>, sparse_storm<double>); }

}  // namespace
}  // namespace stepnet::gpu_storm
