// CUDA kernels for the reductions of operators/reduce/reduce.cc, where their meaning and derivatives stand.
#include "operators/reduce/reduce.h"

#include "gpu/loops/reduce_axes.h"
#include "gpu/runtime/accumulate.h"

namespace stepnet::gpu_reduce {
namespace {

struct Divided {
  double by;
  constexpr double operator()(double sum) const { return sum / by; }
};
struct Absolute {
  __host__ __device__ double operator()(double v) const { return fabs(v); }
};
struct Square {
  constexpr double operator()(double v) const { return v * v; }
};
struct Root {
  __host__ __device__ double operator()(double v) const { return sqrt(v); }
};

// Sums of Map of the elements, and Finish of these.
template <class Map, class Finish, class T>
void sum_of(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  gpu::reduce_values(a, x, y, call, 0, Map(), std::plus<double>(), Finish());
}

template <class T>
void sum(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const AxisRows rows = gpu::whole_rows(a, call.in(0).shape());
  if (!gpu::record_row_sums(call, rows, x, y, 1)) sum_of<gpu::Same, gpu::Same>(a, x, y, call);
}

template <class T>
void sum_gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const AxisRows rows = gpu::whole_rows(a, call.in(1).shape());
  if (gpu::record_row_shares(call, rows, dy, dx, 1)) return;
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[place.find(i)]; });
}

REGISTER(reduce_sum_cuda) {
  return cuda<ReduceArgs>("ReduceSum", sum<float>, sum<double>, sum<float16>, sum<bfloat16>);
}
REGISTER(reduce_sum_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceSumGradient", sum_gradient<float>, sum_gradient<double>, sum_gradient<float16>,
                          sum_gradient<bfloat16>);
}

template <class T>
void mean(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const int64_t count = gpu::values_of_each(a, call.in(0).shape());
  const AxisRows rows = gpu::whole_rows(a, call.in(0).shape());
  if (gpu::record_row_sums(call, rows, x, y, static_cast<double>(rows.size))) return;
  const Divided mean{count == 0 ? 1.0 : static_cast<double>(count)};
  gpu::reduce_values(a, x, y, call, 0, gpu::Same(), std::plus<double>(), mean);
}

template <class T>
void mean_gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const AxisRows rows = gpu::whole_rows(a, call.in(1).shape());
  if (gpu::record_row_shares(call, rows, dy, dx, static_cast<double>(rows.size))) return;
  const auto count = static_cast<gpu::Accumulate<T>>(gpu::values_of_each(a, call.in(1).shape()));
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = dy[place.find(i)] / count; });
}

REGISTER(reduce_mean_cuda) {
  return cuda<ReduceArgs>("ReduceMean", mean<float>, mean<double>, mean<float16>, mean<bfloat16>);
}
REGISTER(reduce_mean_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceMeanGradient", mean_gradient<float>, mean_gradient<double>, mean_gradient<float16>,
                          mean_gradient<bfloat16>);
}

template <class T>
void l1_gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::Out<T> dx, Call& call) {
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const T up = dy[place.find(i)];
    dx[i] = x[i] > 0 ? up : x[i] < 0 ? -up : T(0);
  });
}

REGISTER(reduce_l1_cuda) {
  return cuda<ReduceArgs>("ReduceL1", sum_of<Absolute, gpu::Same, float>, sum_of<Absolute, gpu::Same, double>);
}
REGISTER(reduce_l1_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceL1Gradient", l1_gradient<float>, l1_gradient<double>);
}

// Squares are added in double, so norms of floats do not overflow here.
template <class T>
void norm_gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> dx, Call& call) {
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const size_t j = place.find(i);
    dx[i] = y[j] == 0 ? T(0) : x[i] / y[j] * dy[j];
  });
}

REGISTER(reduce_l2_cuda) {
  return cuda<ReduceArgs>("ReduceL2", sum_of<Square, Root, float>, sum_of<Square, Root, double>);
}
REGISTER(reduce_l2_gradient_cuda) {
  return cuda<ReduceArgs>("ReduceL2Gradient", norm_gradient<float>, norm_gradient<double>);
}

template <class Before, class T>
void extreme(const ReduceArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  using Wide = ReductionType<T>;
  constexpr bool greatest = std::is_same_v<Before, std::greater<>>;
  const Wide first = greatest ? least_value<Wide>() : greatest_value<Wide>();
  gpu::reduce_values(a, x, y, call, first, gpu::Same(), gpu::ExtremeOf<Before>(), gpu::Same());
}

template <class T>
void extreme_gradient(const ReduceArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> dx, Call& call) {
  const gpu::Strided place = gpu::places_in_result(a, call);
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const size_t j = place.find(i);
    dx[i] = x[i] == y[j] ? dy[j] : T(0);
  });
}

template <class Before>
Registration extremes(const char* type) {
  return cuda<ReduceArgs>(type, extreme<Before, float>, extreme<Before, double>, extreme<Before, int32_t>,
                          extreme<Before, int64_t>);
}
Registration extreme_gradients(const char* type) {
  return cuda<ReduceArgs>(type, extreme_gradient<float>, extreme_gradient<double>);
}

REGISTER(reduce_max_cuda) { return extremes<std::greater<>>("ReduceMax"); }
REGISTER(reduce_max_gradient_cuda) { return extreme_gradients("ReduceMaxGradient"); }
REGISTER(reduce_min_cuda) { return extremes<std::less<>>("ReduceMin"); }
REGISTER(reduce_min_gradient_cuda) { return extreme_gradients("ReduceMinGradient"); }

}  // namespace
}  // namespace stepnet::gpu_reduce
