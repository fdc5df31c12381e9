// CUDA kernel for ScatterWeightedSum. Meaning: see operators/optimizer/scatter_weighted_sum.cc.
#include "gpu/loops/indexed_slices.h"

namespace stepnet::gpu_scatter_weighted_sum {
namespace {

constexpr int kIndices = 2, kFirst = 3;  // inputs: X_0, weight_0, INDICES, X_1, weight_1, ...

template <class T>
void scale_rows(const Call& call, const gpu::Indices& indices, const OneAxis& rows, T* table) {
  const gpu::Scalar weight(call.in(1));
  gpu::each_indexed(call, indices, rows, [=] __device__(size_t to, size_t) {
    const T w = static_cast<T>(weight.value());
    if (w != T(1)) table[to] = w * table[to];
  });
}

template <class T>
void add_rows(const Call& call, const gpu::Indices& indices, const OneAxis& rows, T* table, int input) {
  const T* const from = gpu::in_span<T>(call.in(input)).data;
  const gpu::Scalar weight(call.in(input + 1));
  gpu::each_indexed(call, indices, rows, [=] __device__(size_t to, size_t at) {
    table[to] = table[to] + static_cast<T>(weight.value()) * from[at];
  });
}

template <class T>
void scatter(gpu::Out<T> table, Call& call) {
  const gpu::Indices indices(call.in(kIndices));
  const Shape& shape = call.in(0).shape();
  const OneAxis rows{1, shape[0], shape.size_between(1, shape.rank())};
  scale_rows(call, indices, rows, table.data);
  for (int j = kFirst; j < call.inputs(); j += 2) add_rows(call, indices, rows, table.data, j);
}

REGISTER(scatter_weighted_sum_cuda) { return cuda("ScatterWeightedSum", scatter<float>, scatter<double>); }

}  // namespace
}  // namespace stepnet::gpu_scatter_weighted_sum
