// CUDA kernel for OneHot. Meaning and derivative: see operators/index/one_hot.cc.
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_one_hot {
namespace {

void one_hot(Call& call) {
  const gpu::Indices indices(call.in(0));
  const gpu::Bounds bounds = gpu::bounds(call, "an index");
  const auto y = gpu::out_span<float>(call.out(0));
  const int64_t width = call.out(0).dim(1);
  const size_t row =
      static_cast<size_t>(std::max<int64_t>(width, 1));  // of no width, indices are looked at all the same
  const gpu::Divider rows(row);
  gpu::each(call, static_cast<size_t>(indices.size) * row, [=] __device__(size_t i) {
    const auto [place, column] = rows.split(i);
    const int64_t index = indices[place];
    if (column == 0) bounds.inside(index, width);
    if (i < y.size) y[i] = index == static_cast<int64_t>(column) ? 1.0F : 0.0F;
  });
}

REGISTER(one_hot_cuda) { return cuda("OneHot", one_hot); }

}  // namespace
}  // namespace stepnet::gpu_one_hot
