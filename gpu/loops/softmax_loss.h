// What the CUDA kernels of SoftmaxWithLoss, SpatialSoftmaxWithLoss and their gradients share; see
// operators/loss/softmax_loss.h. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/lines.h"
#include "gpu/loops/reduce.h"
#include "gpu/loops/temporary.h"
#include "operators/loss/softmax_loss.h"

namespace stepnet::gpu {

// The targets and weights of lines, as stepnet::LossTargets, in kernels. A label that is no class is noted by `check`,
// and left out like a place that has none.
template <class T>
struct DeviceTargets {
  int64_t size = 0, count = 0;
  bool spatial = false, distributions = false;
  const T *shares = nullptr, *weights = nullptr;
  const int32_t* short_labels = nullptr;
  const int64_t* labels = nullptr;
  Bounds bounds;

  DeviceTargets(const Call& call, const LossArgs& a, const OneAxis& lines, const Tensor& target, In<T> w)
      : size(lines.size),
        count(lines.lines()),
        spatial(a.spatial),
        distributions(a.label_prob),
        weights(w.data),
        bounds(gpu::bounds(call, "a label")) {
    if (a.label_prob)
      shares = in_span<T>(target).data;
    else if (target.dtype() == DType::int32)
      short_labels = in_span<int32_t>(target).data;
    else
      labels = in_span<int64_t>(target).data;
  }

  __host__ __device__ int64_t label(size_t n) const { return short_labels ? int64_t{short_labels[n]} : labels[n]; }
  __host__ __device__ bool ignored(size_t n) const { return !distributions && (label(n) < 0 || label(n) >= size); }
  __host__ __device__ void check(size_t n) const {
    if (!distributions && !(spatial && label(n) == kIgnored)) bounds.inside(label(n), size);
  }
  __host__ __device__ double weight(size_t n) const {
    return ignored(n) ? 0 : weights ? static_cast<double>(weights[n]) : 1;
  }
  __host__ __device__ double share(size_t n, size_t j) const {
    if (distributions) return static_cast<double>(shares[n * static_cast<size_t>(size) + j]);
    return label(n) == static_cast<int64_t>(j) ? 1 : 0;
  }
  template <class Worker>
  __device__ double shares_sum(size_t n, const Worker& worker) const {
    if (!distributions) return 1;
    double sum = 0;
    for (size_t j = worker.thread; j < static_cast<size_t>(size); j += Worker::size) sum += share(n, j);
    return worker.sum(sum);
  }
};

// Sums over lines on the device: of the weights, and of weights times one value per line.
struct WeightedSums {
  const double* sums = nullptr;

  __host__ __device__ double by_total() const { return sums[0] != 0 ? 1 / sums[0] : 0; }
  __host__ __device__ double mean() const { return sums[0] != 0 ? sums[1] / sums[0] : 0; }
};

// Puts them to sums[0] and, if there are values, sums[1].
template <class T>
WeightedSums weighted_sums(const Call& call, const DeviceTargets<T>& targets, const double* values, double* sums) {
  const Axis axis{values ? 2 : 1, targets.count, 1};
  reduce(
      call, axis, 0.0,
      [=] __device__(size_t which, size_t n, size_t) {
        return which == 0 ? targets.weight(n) : targets.weight(n) * values[n];
      },
      std::plus<double>(), [=] __device__(size_t which, size_t, double sum) { sums[which] = sum; });
  return {sums};
}

}  // namespace stepnet::gpu
