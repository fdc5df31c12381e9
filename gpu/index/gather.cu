// CUDA kernel for Gather. Meaning and derivative: see operators/index/gather.cc.
#include "operators/index/gather.h"

#include "gpu/loops/by_width.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_gather {
namespace {

// Elements are copied as they are, whatever their type; a bad index gives zeros and an error.
template <class T>
void copy_rows(Call& call, const Tensor& data, Tensor& y) {
  const gpu::Indices indices(call.in(1));
  const gpu::Bounds bounds = gpu::bounds(call, "an index");
  const int64_t table = data.dim(0), size = data.shape().size_between(1, data.rank());
  const auto from = reinterpret_cast<const T*>(data.raw());
  const auto to = reinterpret_cast<T*>(y.raw());
  gpu::each(call, static_cast<size_t>(indices.size * size), [=] __device__(size_t i) {
    const int64_t row = indices[i / size];
    to[i] = bounds.inside(row, table) ? from[row * size + i % size] : T{0};
  });
}

void gather(Call& call) {
  const Tensor& data = call.in(0);
  gpu::by_width(data, [&](auto element) { copy_rows<decltype(element)>(call, data, call.out(0)); });
}

REGISTER(gather_cuda) { return cuda<GatherArgs>("Gather", gather); }

}  // namespace
}  // namespace stepnet::gpu_gather
