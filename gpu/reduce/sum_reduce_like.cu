// CUDA kernels for SumReduceLike, its gradient and ExpandGradient. Meaning and derivatives: see
// operators/reduce/sum_reduce_like.cc.
#include "operators/reduce/sum_reduce_like.h"

#include "gpu/loops/reduce.h"
#include "gpu/runtime/accumulate.h"
#include "operators/reduce/reduce.h"

namespace stepnet::gpu_sum_reduce_like {
namespace {

template <class T>
void reduce(const BroadcastArgs& args, gpu::In<T> a, gpu::Out<T> c, Call& call) {
  using Wide = ReductionType<gpu::Accumulate<T>>;
  const Broadcast shapes = sum_like_shapes(args, call.in(0).shape(), call.in(1).shape());
  const bool adds = call.accumulates(0);
  gpu::reduce_dims(
      call, gpu::ReducedDims(shapes.out, shapes.b), Wide(0),
      [=] __device__(size_t i) { return static_cast<Wide>(a[i]); }, std::plus<Wide>(),
      [=] __device__(size_t j, Wide sum) { c[j] = static_cast<T>(adds ? static_cast<Wide>(c[j]) + sum : sum); });
}

template <class T>
void spread(const BroadcastArgs& args, const Tensor&, gpu::In<T> dc, gpu::Out<T> da, Call& call) {
  const Broadcast shapes = sum_like_shapes(args, call.in(0).shape(), call.in(1).shape());
  const gpu::Strided from = gpu::places_of(shapes.out, shapes.b);
  gpu::each(call, da.size, [=] __device__(size_t i) { da[i] = dc[from.find(i)]; });
}

REGISTER(sum_reduce_like_cuda) {
  return cuda<BroadcastArgs>("SumReduceLike", reduce<float>, reduce<double>, reduce<float16>, reduce<bfloat16>,
                             reduce<int32_t>, reduce<int64_t>);
}
REGISTER(sum_reduce_like_gradient_cuda) {
  return cuda<BroadcastArgs>("SumReduceLikeGradient", spread<float>, spread<double>, spread<float16>, spread<bfloat16>,
                             spread<int32_t>, spread<int64_t>);
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
