// CUDA kernel for Expand. Meaning and derivative: see operators/shape/expand.cc.
#include "gpu/loops/reduce.h"
#include "stepnet/half.h"

namespace stepnet::gpu_expand {
namespace {

template <class T>
void expand(gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const Shape& from = call.in(0).shape();
  const Shape& to = call.out(0).shape();
  Shape aligned;
  for (int i = from.rank(); i < to.rank(); ++i) aligned.push_back(1);
  for (const int64_t size : from) aligned.push_back(size);
  const gpu::Strided place = gpu::places_of(to, aligned);
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = x[place.find(i)]; });
}

REGISTER(expand_cuda) {
  return cuda("Expand", expand<float>, expand<double>, expand<float16>, expand<bfloat16>, expand<int32_t>,
              expand<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_expand
