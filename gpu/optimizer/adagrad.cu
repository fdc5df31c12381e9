// CUDA kernels for Adagrad, SparseAdagrad and RowWiseSparseAdagrad. Meaning: see operators/optimizer/adagrad.cc.
#include "operators/optimizer/adagrad.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/reduce.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_adagrad {
namespace {

template <class T>
void adagrad(const AdagradArgs& args, gpu::In<T> param, gpu::In<T> moment, gpu::In<T> grad, const Tensor& lr,
             gpu::Out<T> new_param, gpu::Out<T> new_moment, gpu::Out<T> effective, gpu::Out<T> update, Call& call) {
  const gpu::Scalar rate(lr);
  gpu::each(call, param.size, [=] __device__(size_t i) {
    adagrad_run(args, static_cast<T>(rate.value()), 1, grad.data + i, param.data + i, moment.data + i,
                new_param.data + i, new_moment.data + i, effective.data ? effective.data + i : nullptr,
                update.data ? update.data + i : nullptr);
  });
}

REGISTER(adagrad_cuda) { return cuda<AdagradArgs>("Adagrad", adagrad<float>, adagrad<double>); }

// Table and moment are in place: the outputs hold their values.
template <class T>
void sparse_adagrad(const AdagradArgs& args, gpu::Out<T> param, gpu::Out<T> moment, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  gpu::for_each_row(call, call.in(2), table[0], row, gpu::RateOf<T>{gpu::Scalar(call.in(4))},
                    [=] __device__(T rate, int64_t k, int64_t at, int64_t column) {
                      T* const p = param.data + at * row + column;
                      T* const h = moment.data + at * row + column;
                      adagrad_run(args, rate, 1, grad.data + k * row + column, p, h, p, h);
                    });
}

REGISTER(sparse_adagrad_cuda) {
  return cuda<AdagradArgs>("SparseAdagrad", sparse_adagrad<float>, sparse_adagrad<double>);
}

// A counter for each row, in either type, or none: 0.
struct Counter {
  const double* wide = nullptr;
  const float* narrow = nullptr;

  Counter(const AdagradArgs& args, const Call& call) {
    if (args.counter_halflife <= 0) return;
    if (call.in(5).dtype() == DType::float64)
      wide = gpu::in_span<double>(call.in(5)).data;
    else
      narrow = gpu::in_span<float>(call.in(5)).data;
  }
  __device__ double operator[](int64_t row) const {
    return wide ? wide[row] : narrow ? static_cast<double>(narrow[row]) : 0.0;
  }
};

// With weight decay an index's mean square depends on the steps of the same index before it, so a thread has the whole
// row.
template <class T>
void decaying_row_wise(const AdagradArgs& args, gpu::Out<T> param, gpu::Out<T> moment, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  const Counter counter(args, call);
  gpu::for_each_row(call, call.in(2), table[0], 1, gpu::RateOf<T>{gpu::Scalar(call.in(4))},
                    [=] __device__(T rate, int64_t k, int64_t at, int64_t) {
                      const T decay = static_cast<T>(row_decay(args, counter[at]));
                      const T* const g = grad.data + k * row;
                      T* const p = param.data + at * row;
                      double sum = 0;
                      for (int64_t i = 0; i < row; ++i) {
                        const double v = static_cast<double>(g[i] + decay * p[i]);
                        sum += v * v;
                      }
                      const T h = moment[at] += row > 0 ? static_cast<T>(sum / static_cast<double>(row)) : T(0);
                      const T step = rate / (sqrt(h) + static_cast<T>(args.epsilon));
                      for (int64_t i = 0; i < row; ++i) p[i] += step * (g[i] + decay * p[i]);
                    });
}

// Table and moment are in place: the outputs hold their values. Each index's mean square comes first, then the moment
// that its row has with it, then the step.
template <class T>
void row_wise(const AdagradArgs& args, gpu::Out<T> param, gpu::Out<T> moment, Call& call) {
  if (args.weight_decay != 0) return decaying_row_wise(args, param, moment, call);
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Tensor& indices = call.in(2);
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  Tensor scratch = gpu::workspace(call, dtype_of<T>(), {indices.size()});
  T* const moments = reinterpret_cast<T*>(scratch.raw());
  gpu::reduce(
      call, {indices.size(), row, 1}, 0.0,
      [=] __device__(size_t k, size_t j, size_t) {
        const double g = static_cast<double>(grad[k * row + j]);
        return g * g;
      },
      std::plus<double>(),
      [=] __device__(size_t k, size_t, double sum) {
        moments[k] = row > 0 ? static_cast<T>(sum / static_cast<double>(row)) : T(0);
      });
  const gpu::RateOf<T> lr{gpu::Scalar(call.in(4))};
  gpu::for_each_row(call, indices, table[0], 1, lr,
                    [=] __device__(T, int64_t k, int64_t at, int64_t) { moments[k] = moment[at] += moments[k]; });
  const T epsilon = args.epsilon;
  gpu::for_each_row(call, indices, table[0], row, lr, [=] __device__(T rate, int64_t k, int64_t at, int64_t column) {
    const T step = rate / (sqrt(moments[k]) + epsilon);
    param[at * row + column] += step * grad[k * row + column];
  });
}

REGISTER(row_wise_sparse_adagrad_cuda) {
  return cuda<AdagradArgs>("RowWiseSparseAdagrad", row_wise<float>, row_wise<double>);
}

}  // namespace
}  // namespace stepnet::gpu_adagrad
