// CUDA kernels for GatherRanges and its gradient. Meaning and derivatives: see operators/index/gather_ranges.cc.
#include "gpu/loops/indexed_slices.h"
#include "gpu/loops/temporary.h"

namespace stepnet::gpu_gather_ranges {
namespace {

// Ranges as they are on the device; those that do not lie in [0, rows) have no rows.
struct Ranges {
  gpu::Indices values;
  gpu::Bounds bounds;
  int64_t rows = 0;

  __host__ __device__ size_t size() const { return static_cast<size_t>(values.size) / 2; }
  __device__ int64_t first(size_t i) const { return values[2 * i]; }
  __device__ int64_t count(size_t i) const {
    const int64_t first = values[2 * i], count = values[2 * i + 1];
    return bounds.inside(first, rows + 1) && bounds.inside(count, rows - first + 1) ? count : 0;
  }
};

// starts[i] = how many rows the ranges before range i have; starts[size] = all. One team, whose threads each go through
// some neighbouring ranges twice.
void sum_before(const Call& call, const Ranges& ranges, int64_t* starts) {
  gpu::each_team(call, 1, [=] __device__(size_t, const gpu::Team& team) {
    const size_t each = (ranges.size() + team.size - 1) / team.size;
    const size_t begin = each * team.thread < ranges.size() ? each * team.thread : ranges.size();
    const size_t end = ranges.size() - begin < each ? ranges.size() : begin + each;
    int64_t* const sums = reinterpret_cast<int64_t*>(team.room);
    int64_t sum = 0;
    for (size_t i = begin; i < end; ++i) sum += ranges.count(i);
    sums[team.thread] = sum;
    team.sync();
    sum = 0;
    for (unsigned t = 0; t < team.thread; ++t) sum += sums[t];
    for (size_t i = begin; i < end; ++i) {
      starts[i] = sum;
      sum += ranges.count(i);
    }
    if (team.thread == team.size - 1) starts[ranges.size()] = sum;
  });
}

// For each of `total` rows of all ranges, the row of DATA that it is; -1 for one that no range has.
Tensor rows_of(const Call& call, const Tensor& given, int64_t rows, int64_t total) {
  const Ranges ranges{gpu::Indices(given), gpu::bounds(call, "the beginning or the size of a range"), rows};
  const gpu::Bounds sums = gpu::bounds(call, "the number of rows of all ranges");
  const size_t size = ranges.size();
  Tensor before = gpu::workspace(call, DType::int64, {static_cast<int64_t>(size) + 1});
  Tensor found = gpu::workspace(call, DType::int64, {total});
  int64_t* const starts = gpu::out_span<int64_t>(before).data;
  int64_t* const out = gpu::out_span<int64_t>(found).data;
  sum_before(call, ranges, starts);
  gpu::each(call, static_cast<size_t>(total), [=] __device__(size_t i) {
    const auto row = static_cast<int64_t>(i);
    if (i == 0 && starts[size] != total) sums.report(starts[size], total + 1);
    size_t low = 0, high = size;  // the last range that starts at or before this row is in [low, high)
    while (high - low > 1) {
      const size_t middle = low + (high - low) / 2;
      if (starts[middle] <= row)
        low = middle;
      else
        high = middle;
    }
    out[i] = row < starts[size] ? ranges.first(low) + row - starts[low] : -1;
  });
  return found;
}

void sum_lengths(const Call& call, const Tensor& given, int64_t rows, gpu::Out<int32_t> lengths) {
  const Ranges ranges{gpu::Indices(given), gpu::bounds(call, "the beginning or the size of a range"), rows};
  const gpu::Bounds bounds = gpu::bounds(call, "the number of an example's rows");
  const auto each = static_cast<size_t>(given.dim(1));
  gpu::each(call, lengths.size, [=] __device__(size_t n) {
    int64_t sum = 0;
    for (size_t k = n * each; k < (n + 1) * each; ++k) sum += ranges.count(k);
    lengths[n] = bounds.inside(sum, int64_t{1} << 31) ? static_cast<int32_t>(sum) : 0;
  });
}

OneAxis rows_in(const Shape& data) { return {1, data[0], data.size_between(1, data.rank())}; }

void gather(Call& call) {
  const Tensor& data = call.in(0);
  const Tensor& ranges = call.in(1);
  if (call.wants(1)) sum_lengths(call, ranges, data.dim(0), gpu::out_span<int32_t>(call.out(1)));
  if (!call.wants(0)) return;
  const Tensor rows = rows_of(call, ranges, data.dim(0), call.out(0).dim(0));
  gpu::gather_slices(call, gpu::Indices(rows), rows_in(data.shape()), data, call.out(0));
}

template <class T>
void scatter(const Tensor&, const Tensor& ranges, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const Shape& shape = call.out(0).shape();
  call.out(0).fill_zero();
  const Tensor rows = rows_of(call, ranges, shape[0], call.in(2).dim(0));
  gpu::add_slices(call, gpu::Indices(rows), rows_in(shape), dy.data, dx.data);
}

REGISTER(gather_ranges_cuda) { return cuda("GatherRanges", gather); }
REGISTER(gather_ranges_gradient_cuda) { return cuda("GatherRangesGradient", scatter<float>, scatter<double>); }

}  // namespace
}  // namespace stepnet::gpu_gather_ranges
