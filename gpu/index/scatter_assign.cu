// CUDA kernel for ScatterAssign. Meaning: see operators/index/scatter_assign.cc.
#include "gpu/loops/indexed_slices.h"

namespace stepnet::gpu_scatter_assign {
namespace {

template <class Unit>
void assign_units(const Call& call, const gpu::Indices& indices, const OneAxis& lines, const Unit* slices,
                  Unit* table) {
  gpu::each_indexed(call, indices, lines, [=] __device__(size_t to, size_t from) { table[to] = slices[from]; });
}

void assign(Call& call) {
  Tensor& data = call.out(0);
  const gpu::Indices indices(call.in(1));
  const std::byte* slices = gpu::bytes_of(call.in(2));
  std::byte* table = gpu::bytes_of(data);
  const size_t bytes = gpu::width_of(data, data.shape().size_between(1, data.rank()));
  gpu::with_unit(bytes | gpu::address(slices) | gpu::address(table), [&](auto unit) {
    using Unit = decltype(unit);
    const OneAxis rows{1, data.dim(0), static_cast<int64_t>(bytes / sizeof(Unit))};
    assign_units(call, indices, rows, reinterpret_cast<const Unit*>(slices), reinterpret_cast<Unit*>(table));
  });
}

REGISTER(scatter_assign_cuda) { return cuda("ScatterAssign", assign); }

}  // namespace
}  // namespace stepnet::gpu_scatter_assign
