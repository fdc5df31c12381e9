// CUDA kernels for the reductions of operators/reduce/reduce_front_back.cc, where their meaning and derivatives stand.
#include "operators/reduce/reduce_front_back.h"

#include "gpu/loops/reduce_axes.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_reduce_front_back {
namespace {

// How many elements of each stretch count. A length that is outside of 0 to `size` is noted, and counts as 0.
struct Counts {
  int64_t size = 0;
  bool given = false;
  gpu::Indices lengths;
  gpu::Bounds bounds;

  Counts(const Call& call, int input, int64_t of_size)
      : size(of_size),
        given(call.has(input)),
        lengths(given ? call.in(input) : Tensor::empty(DType::int64, Shape{0})),
        bounds(gpu::bounds(call, "a length")) {}
  __device__ int64_t operator[](size_t value) const {
    if (!given) return size;
    const int64_t length = lengths[value];
    return bounds.inside(length, size + 1) ? length : 0;
  }
};

// Whether it is a sum or mean of rows, which a kernel for all timesteps may have if they are whole.
template <bool kFront, class Kind, class T>
constexpr bool kSumsRows = !kFront && std::is_floating_point_v<T> &&
                           (std::is_same_v<Kind, SumOfStretch> || std::is_same_v<Kind, MeanOfStretch>);
template <class Kind>
double divisor(int64_t size) {
  return std::is_same_v<Kind, SumOfStretch> ? 1 : static_cast<double>(size);
}

template <bool kFront, class Kind, class T>
void forward(const FrontBackArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  using Wide = gpu::Reduced<T>;
  const Stretches<kFront> stretches(a, call.in(0).shape());
  if constexpr (kSumsRows<kFront, Kind, T>)
    if (!call.has(1) &&
        gpu::record_row_sums(call, {stretches.values, stretches.size}, x, y, divisor<Kind>(stretches.size)))
      return;
  const Counts counts(call, 1, stretches.size);
  const gpu::Axis axis =
      kFront ? gpu::Axis{1, stretches.size, stretches.values} : gpu::Axis{stretches.values, stretches.size, 1};
  gpu::reduce(
      call, axis, Kind::template first<Wide>(),
      [=] __device__(size_t o, size_t k, size_t i) {
        const size_t value = kFront ? i : o;
        const auto element = static_cast<int64_t>(k);
        if (element >= counts[value]) return Kind::template first<Wide>();
        return static_cast<Wide>(x[static_cast<size_t>(stretches.at(static_cast<int64_t>(value), element))]);
      },
      Kind(),
      [=] __device__(size_t o, size_t i, Wide all) {
        const size_t value = kFront ? i : o;
        y[value] = static_cast<T>(Kind::finish(all, counts[value]));
      });
}

// Calls fn(i, value, count) for each element i of X that counts; the others are 0.
template <bool kFront, class T, class Fn>
void each_element(const Call& call, const Stretches<kFront>& stretches, const Counts& counts, gpu::Out<T> dx, Fn fn) {
  const gpu::Divider rows(static_cast<size_t>(kFront ? stretches.values : stretches.size));
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const gpu::SignedSplit split = rows.signed_split(i);
    const int64_t value = kFront ? split.remainder : split.quotient;
    const int64_t element = kFront ? split.quotient : split.remainder;
    const int64_t count = counts[static_cast<size_t>(value)];
    dx[i] = element < count ? fn(i, static_cast<size_t>(value), count) : T(0);
  });
}

template <bool kFront, class Kind, class T>
void gradient(const FrontBackArgs& a, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const Stretches<kFront> stretches(a, call.in(1).shape());
  if constexpr (kSumsRows<kFront, Kind, T>)
    if (!call.has(2) &&
        gpu::record_row_shares(call, {stretches.values, stretches.size}, dy, dx, divisor<Kind>(stretches.size)))
      return;
  each_element(call, stretches, Counts(call, 2, stretches.size), dx,
               [=] __device__(size_t, size_t value, int64_t count) -> T { return Kind::share(dy[value], count); });
}

template <bool kFront, class T>
void max_gradient(const FrontBackArgs& a, gpu::In<T> dy, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> dx, Call& call) {
  const Stretches<kFront> stretches(a, call.in(1).shape());
  each_element(call, stretches, Counts(call, 3, stretches.size), dx,
               [=] __device__(size_t i, size_t value, int64_t) -> T { return x[i] == y[value] ? dy[value] : T(0); });
}

template <bool kFront, class Kind>
Registration reduction(const char* type) {
  return cuda<FrontBackArgs>(type, forward<kFront, Kind, float>, forward<kFront, Kind, double>,
                             forward<kFront, Kind, int32_t>, forward<kFront, Kind, int64_t>);
}
template <bool kFront, class Kind>
Registration reduction_gradient(const char* type) {
  return cuda<FrontBackArgs>(type, gradient<kFront, Kind, float>, gradient<kFront, Kind, double>);
}
template <bool kFront>
Registration maximum_gradient(const char* type) {
  return cuda<FrontBackArgs>(type, max_gradient<kFront, float>, max_gradient<kFront, double>);
}

REGISTER(reduce_front_sum_cuda) { return reduction<true, SumOfStretch>("ReduceFrontSum"); }
REGISTER(reduce_back_sum_cuda) { return reduction<false, SumOfStretch>("ReduceBackSum"); }
REGISTER(reduce_front_mean_cuda) { return reduction<true, MeanOfStretch>("ReduceFrontMean"); }
REGISTER(reduce_back_mean_cuda) { return reduction<false, MeanOfStretch>("ReduceBackMean"); }
REGISTER(reduce_front_max_cuda) { return reduction<true, MaxOfStretch>("ReduceFrontMax"); }
REGISTER(reduce_back_max_cuda) { return reduction<false, MaxOfStretch>("ReduceBackMax"); }
REGISTER(reduce_front_sum_gradient_cuda) { return reduction_gradient<true, SumOfStretch>("ReduceFrontSumGradient"); }
REGISTER(reduce_back_sum_gradient_cuda) { return reduction_gradient<false, SumOfStretch>("ReduceBackSumGradient"); }
REGISTER(reduce_front_mean_gradient_cuda) { return reduction_gradient<true, MeanOfStretch>("ReduceFrontMeanGradient"); }
REGISTER(reduce_back_mean_gradient_cuda) { return reduction_gradient<false, MeanOfStretch>("ReduceBackMeanGradient"); }
REGISTER(reduce_front_max_gradient_cuda) { return maximum_gradient<true>("ReduceFrontMaxGradient"); }
REGISTER(reduce_back_max_gradient_cuda) { return maximum_gradient<false>("ReduceBackMaxGradient"); }

}  // namespace
}  // namespace stepnet::gpu_reduce_front_back
