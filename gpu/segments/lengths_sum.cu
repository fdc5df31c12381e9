// CUDA kernels for LengthsSum and LengthsMean, of rows and of rows by index, their gradients, and LengthsTile. Meaning
// and derivatives: see operators/segments/lengths_sum.cc.
#include <functional>

#include "gpu/loops/row_segments.h"

namespace stepnet::gpu_lengths_sum {
namespace {

template <class T, bool kMean>
void sum_rows(const Call& call, gpu::In<T> data, const Tensor* indices, const Tensor& lengths, gpu::Out<T> sums) {
  const Shape& shape = call.in(0).shape();
  const int64_t row = shape.size_between(1, shape.rank()), places = indices ? indices->size() : shape[0];
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = places});
  const gpu::PlaceRows rows(call, indices, shape[0]);
  gpu::reduce_segments(
      call, gpu::Segments(starts, places), row, T(0),
      [=] __device__(int64_t k, int64_t j) {
        const int64_t r = rows.at(k);
        return r < 0 ? T(0) : data[r * row + j];
      },
      std::plus<T>(),
      [=] __device__(int64_t s, int64_t j, T sum, int64_t length) {
        sums[s * row + j] = kMean && length > 0 ? sum / static_cast<T>(length) : sum;
      });
}

template <class T, bool kMean>
void sums(gpu::In<T> data, const Tensor& lengths, gpu::Out<T> y, Call& call) {
  sum_rows<T, kMean>(call, data, nullptr, lengths, y);
}

template <class T, bool kMean>
void sparse_sums(gpu::In<T> data, const Tensor& indices, const Tensor& lengths, gpu::Out<T> y, Call& call) {
  sum_rows<T, kMean>(call, data, &indices, lengths, y);
}

template <class T, bool kMean>
void repeat_rows(gpu::In<T> dy, const Tensor& lengths, gpu::Out<T> dx, Call& call) {
  if (dx.size == 0) return;
  const Shape& shape = call.out(0).shape();
  const int64_t row = shape.size_between(1, shape.rank());
  const Tensor starts = gpu::segment_starts(call, lengths, {.places = shape[0]});
  const gpu::Segments segments(starts, shape[0]);
  const gpu::Divider rows(static_cast<size_t>(row));
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const auto [k, column] = rows.signed_split(i);
    const int64_t s = segments.of(k);
    const T value = s < segments.count ? dy[s * row + column] : T(0);
    dx[i] = kMean && s < segments.count ? value / static_cast<T>(segments.length(s)) : value;
  });
}

template <bool kMean>
Registration gradient(const char* type) {
  return cuda(type, repeat_rows<float, kMean>, repeat_rows<double, kMean>);
}

REGISTER(lengths_sum_cuda) { return cuda("LengthsSum", sums<float, false>, sums<double, false>); }
REGISTER(lengths_mean_cuda) { return cuda("LengthsMean", sums<float, true>, sums<double, true>); }
REGISTER(sparse_lengths_sum_cuda) {
  return cuda("SparseLengthsSum", sparse_sums<float, false>, sparse_sums<double, false>);
}
REGISTER(sparse_lengths_mean_cuda) {
  return cuda("SparseLengthsMean", sparse_sums<float, true>, sparse_sums<double, true>);
}
REGISTER(lengths_sum_gradient_cuda) { return gradient<false>("LengthsSumGradient"); }
REGISTER(lengths_mean_gradient_cuda) { return gradient<true>("LengthsMeanGradient"); }
REGISTER(sparse_lengths_sum_gradient_cuda) { return gradient<false>("SparseLengthsSumGradient"); }
REGISTER(sparse_lengths_mean_gradient_cuda) { return gradient<true>("SparseLengthsMeanGradient"); }
REGISTER(lengths_indices_in_gradient_sum_gradient_cuda) {
  return gradient<false>("LengthsIndicesInGradientSumGradient");
}
REGISTER(lengths_indices_in_gradient_mean_gradient_cuda) {
  return gradient<true>("LengthsIndicesInGradientMeanGradient");
}
REGISTER(sparse_lengths_indices_in_gradient_sum_gradient_cuda) {
  return gradient<false>("SparseLengthsIndicesInGradientSumGradient");
}
REGISTER(sparse_lengths_indices_in_gradient_mean_gradient_cuda) {
  return gradient<true>("SparseLengthsIndicesInGradientMeanGradient");
}
REGISTER(lengths_tile_cuda) {
  return cuda("LengthsTile", repeat_rows<float, false>, repeat_rows<double, false>, repeat_rows<int32_t, false>,
              repeat_rows<int64_t, false>);
}

}  // namespace
}  // namespace stepnet::gpu_lengths_sum
