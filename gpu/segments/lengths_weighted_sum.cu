// CUDA kernels for LengthsWeightedSum, of rows and of rows by index, and its gradients. Meaning and derivatives: see
// operators/segments/lengths_weighted_sum.cc.
#include <functional>

#include "gpu/loops/row_segments.h"

namespace stepnet::gpu_lengths_weighted_sum {
namespace {

int64_t row_size(const Tensor& rows) { return rows.shape().size_between(1, rows.rank()); }

// The inputs from 2 on are LENGTHS, or INDICES and LENGTHS.
const Tensor* indices_of(const Call& call) { return call.inputs() == 4 ? &call.in(2) : nullptr; }
const Tensor& lengths_of(const Call& call) { return call.in(call.inputs() - 1); }

template <class T>
void sums(gpu::In<T> data, gpu::In<T> weights, gpu::Out<T> y, Call& call) {
  const Tensor* indices = indices_of(call);
  const int64_t row = row_size(call.in(0)), table = call.in(0).dim(0), places = indices ? indices->size() : table;
  const Tensor starts = gpu::segment_starts(call, lengths_of(call), {.places = places});
  const gpu::PlaceRows rows(call, indices, table);
  gpu::reduce_segments(
      call, gpu::Segments(starts, places), row, T(0),
      [=] __device__(int64_t k, int64_t j) {
        const int64_t r = rows.at(k);
        return r < 0 ? T(0) : weights[k] * data[r * row + j];
      },
      std::plus<T>(), [=] __device__(int64_t s, int64_t j, T sum, int64_t) { y[s * row + j] = sum; });
}

template <class T>
void weighted_rows(gpu::In<T> weights, gpu::In<T> dy, const Tensor& lengths, gpu::Out<T> dx, Call& call) {
  if (dx.size == 0) return;
  const int64_t row = row_size(call.in(1)), places = static_cast<int64_t>(weights.size);
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = places});
  const gpu::Segments segments(starts, places);
  const gpu::Divider rows(static_cast<size_t>(row));
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const auto [k, column] = rows.signed_split(i);
    const int64_t s = segments.of(k);
    dx[i] = s < segments.count ? weights[k] * dy[s * row + column] : T(0);
  });
}

// The product of a place's row with its segment's: of short rows by a thread, else by a team.
template <class T>
void products_of_rows(const Call& call, const gpu::Segments& segments, gpu::In<T> data, gpu::In<T> dy, int64_t row,
                      const gpu::PlaceRows& rows, gpu::Out<T> dw) {
  if (row < gpu::kTile) {
    gpu::each(call, dw.size, [=] __device__(size_t k) {
      const int64_t s = segments.of(static_cast<int64_t>(k)), r = rows.at(static_cast<int64_t>(k));
      T sum = 0;
      if (s < segments.count && r >= 0)
        for (int64_t j = 0; j < row; ++j) sum += data[r * row + j] * dy[s * row + j];
      dw[k] = sum;
    });
    return;
  }
  gpu::each_team(call, dw.size, [=] __device__(size_t k, const gpu::Team& team) {
    const int64_t s = segments.of(static_cast<int64_t>(k)), r = rows.at(static_cast<int64_t>(k));
    T sum = 0;
    if (s < segments.count && r >= 0)
      for (int64_t j = team.thread; j < row; j += gpu::Team::size) sum += data[r * row + j] * dy[s * row + j];
    sum = team.sum(sum);
    if (team.thread == 0) dw[k] = sum;
  });
}

template <class T>
void products(gpu::In<T> data, gpu::In<T> dy, gpu::Out<T> dw, Call& call) {
  const int64_t places = static_cast<int64_t>(dw.size);
  const Tensor starts = gpu::segment_starts(call, lengths_of(call), {.places = places});
  const gpu::PlaceRows rows(call, indices_of(call), call.in(0).dim(0));
  products_of_rows(call, gpu::Segments(starts, places), data, dy, row_size(call.in(0)), rows, dw);
}

template <class T>
void both_gradients(gpu::In<T> weights, gpu::In<T> dy, const Tensor& lengths, gpu::In<T> data, gpu::Out<T> dx,
                    gpu::Out<T> dw, Call& call) {
  if (call.wants(0)) weighted_rows(weights, dy, lengths, dx, call);
  if (!call.wants(1)) return;
  const int64_t places = static_cast<int64_t>(dw.size);
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = places});
  const gpu::PlaceRows rows(call, call.has(4) ? &call.in(4) : nullptr, call.in(3).dim(0));
  products_of_rows(call, gpu::Segments(starts, places), data, dy, row_size(call.in(3)), rows, dw);
}

REGISTER(lengths_weighted_sum_cuda) { return cuda("LengthsWeightedSum", sums<float>, sums<double>); }
REGISTER(sparse_lengths_weighted_sum_cuda) { return cuda("SparseLengthsWeightedSum", sums<float>, sums<double>); }
REGISTER(lengths_weighted_sum_gradient_cuda) {
  return cuda("LengthsWeightedSumGradient", weighted_rows<float>, weighted_rows<double>);
}
REGISTER(sparse_lengths_weighted_sum_gradient_cuda) {
  return cuda("SparseLengthsWeightedSumGradient", weighted_rows<float>, weighted_rows<double>);
}
REGISTER(sparse_lengths_indices_in_gradient_weighted_sum_gradient_cuda) {
  return cuda("SparseLengthsIndicesInGradientWeightedSumGradient", weighted_rows<float>, weighted_rows<double>);
}
REGISTER(lengths_weighted_sum_with_main_input_gradient_cuda) {
  return cuda("LengthsWeightedSumWithMainInputGradient", both_gradients<float>, both_gradients<double>);
}
REGISTER(sparse_lengths_weighted_sum_with_main_input_gradient_cuda) {
  return cuda("SparseLengthsWeightedSumWithMainInputGradient", both_gradients<float>, both_gradients<double>);
}
REGISTER(sparse_lengths_indices_in_gradient_weighted_sum_with_main_input_gradient_cuda) {
  return cuda("SparseLengthsIndicesInGradientWeightedSumWithMainInputGradient", both_gradients<float>,
              both_gradients<double>);
}
REGISTER(lengths_weighted_sum_weights_gradient_cuda) {
  return cuda("LengthsWeightedSumWeightsGradient", products<float>, products<double>);
}
REGISTER(sparse_lengths_weighted_sum_weights_gradient_cuda) {
  return cuda("SparseLengthsWeightedSumWeightsGradient", products<float>, products<double>);
}

}  // namespace
}  // namespace stepnet::gpu_lengths_weighted_sum
