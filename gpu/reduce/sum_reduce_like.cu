// CUDA kernels for SumReduceLike, its gradient, MatchShape and ExpandGradient. Meaning and derivatives: see
// operators/reduce/sum_reduce_like.cc.
#include "operators/reduce/sum_reduce_like.h"

#include "gpu/loops/row_sums.h"
#include "gpu/runtime/accumulate.h"
#include "operators/reduce/reduce.h"

namespace stepnet::gpu_sum_reduce_like {
namespace {

template <class T>
void sum_to(const Broadcast& shapes, gpu::In<T> a, gpu::Out<T> c, Call& call) {
  using Wide = ReductionType<gpu::Accumulate<T>>;
  const bool adds = call.accumulates(0);
  const gpu::ReducedDims dims(shapes.out, shapes.b);
  if constexpr (is_floating(dtype_of<T>()))
    if (!adds && gpu::record_row_sums(call, gpu::whole_rows(dims), a, c, 1)) return;
  gpu::reduce_dims(
      call, dims, Wide(0), [=] __device__(size_t i) { return static_cast<Wide>(a[i]); }, std::plus<Wide>(),
      [=] __device__(size_t j, Wide sum) { c[j] = static_cast<T>(adds ? static_cast<Wide>(c[j]) + sum : sum); });
}

template <class T>
void repeat_to(const Broadcast& shapes, gpu::In<T> b, gpu::Out<T> a, Call& call) {
  const gpu::Strided from = gpu::places_of(shapes.out, shapes.b);
  const bool adds = call.accumulates(0);
  if constexpr (is_floating(dtype_of<T>()))
    if (!adds && gpu::record_row_shares(call, gpu::whole_rows({shapes.out, shapes.b}), b, a, 1)) return;
  gpu::each(call, a.size, [=] __device__(size_t i) {
    const auto value = static_cast<gpu::Accumulate<T>>(b[from.find(i)]);
    a[i] = static_cast<T>(adds ? static_cast<gpu::Accumulate<T>>(a[i]) + value : value);
  });
}

template <class T>
void reduce(const BroadcastArgs& args, gpu::In<T> a, gpu::Out<T> c, Call& call) {
  sum_to(sum_like_shapes(args, call.in(0).shape(), call.in(1).shape()), a, c, call);
}

template <class T>
void spread(const BroadcastArgs& args, const Tensor&, gpu::In<T> dc, gpu::Out<T> da, Call& call) {
  repeat_to(sum_like_shapes(args, call.in(0).shape(), call.in(1).shape()), dc, da, call);
}

template <class T>
void match(gpu::In<T> a, gpu::Out<T> c, Call& call) {
  const Fit fit = fit_shapes(call.in(0).shape(), call.in(1).shape());
  fit.sums ? sum_to(fit.shapes, a, c, call) : repeat_to(fit.shapes, a, c, call);
}

REGISTER(sum_reduce_like_cuda) {
  return cuda<BroadcastArgs>("SumReduceLike", reduce<float>, reduce<double>, reduce<float16>, reduce<bfloat16>,
                             reduce<int32_t>, reduce<int64_t>);
}
REGISTER(sum_reduce_like_gradient_cuda) {
  return cuda<BroadcastArgs>("SumReduceLikeGradient", spread<float>, spread<double>, spread<float16>, spread<bfloat16>,
                             spread<int32_t>, spread<int64_t>);
}
REGISTER(match_shape_cuda) {
  return cuda("MatchShape", match<float>, match<double>, match<float16>, match<bfloat16>, match<int32_t>,
              match<int64_t>);
}

template <class T>
void expand_gradient(gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  BroadcastArgs args;
  args.broadcast = true;
  reduce(args, dy, dx, call);
}

REGISTER(expand_gradient_cuda) {
  return cuda("ExpandGradient", expand_gradient<float>, expand_gradient<double>, expand_gradient<float16>,
              expand_gradient<bfloat16>, expand_gradient<int32_t>, expand_gradient<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_sum_reduce_like
