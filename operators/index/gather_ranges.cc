// GatherRanges: rows of DATA by ranges (first row, number of rows), [N, K, 2] for N examples: OUTPUT has the rows of
// all ranges one after the other, LENGTHS how many there are for each example.
//
// dDATA = GatherRangesGradient(dOUTPUT), which adds the rows where they came from; its own derivative is GatherRanges.
// Backward reads RANGES and DATA's shape.

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/segment_lengths.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_gather_ranges {
namespace {

void check_ranges_shape(const ShapeCall& call) {
  if (call.known(0)) require(call.shape(0).rank() >= 1, "DATA is a single value, which has no rows");
  if (!call.known(1)) return;
  const Shape& ranges = call.shape(1);
  require(ranges.rank() == 3 && ranges[2] == 2, "RANGES must be [N, K, 2], but is {}", ranges);
}

// Calls fn(index, first row, rows) for each range, in order.
template <class Fn>
void for_ranges(const Tensor& ranges, const Fn& fn) {
  with_indices(ranges, [&](auto values) {
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      fn(static_cast<int64_t>(i / 2), static_cast<int64_t>(values[i]), static_cast<int64_t>(values[i + 1]));
  });
}

// The number of rows in all ranges, each of which must lie in [0, rows).
int64_t checked_sum(const Tensor& ranges, int64_t rows) {
  int64_t sum = 0;
  for_ranges(ranges, [&](int64_t i, int64_t first, int64_t count) {
    if (first < 0 || count < 0 || first > rows || count > rows - first)
      fail("range {} has {} rows from row {} on, but DATA has {} rows", i, count, first, rows);
    if (__builtin_add_overflow(sum, count, &sum)) fail("the ranges up to range {} have too many rows", i);
  });
  return sum;
}

Shape gathered_shape(const ShapeCall& call) {
  const Shape& data = call.shape(0);
  return data.from(1).prepend(checked_sum(*call.value(1), data[0]));
}

void shape(const NoArgs&, ShapeCall& call) {
  check_ranges_shape(call);
  if (call.known(1)) call.set(1, DType::int32, Shape{call.shape(1)[0]});
  if (call.known(0) && call.value(1)) call.set(0, call.dtype(0), gathered_shape(call));
}

void gradient_shape(const NoArgs&, ShapeCall& call) {
  check_ranges_shape(call);
  if (!call.known(0) || !call.known(2)) return;
  if (call.value(1)) {
    const Shape expected = gathered_shape(call);
    require(call.shape(2) == expected, "the gradient of OUTPUT must be {}, but is {}", expected, call.shape(2));
  }
  call.set(0, call.dtype(2), call.shape(0));
}

void gather(Call& call) {
  const Tensor& ranges = call.in(1);
  if (call.wants(0)) {
    const int64_t row = call.in(0).shape().size_between(1, call.in(0).rank());
    int64_t at = 0;
    for_ranges(ranges, [&](int64_t, int64_t first, int64_t count) {
      copy_elements(call.in(0), first * row, call.out(0), at * row, count * row);
      at += count;
    });
  }
  if (!call.wants(1)) return;
  const Out<int32_t> lengths = call.out_span<int32_t>(1);
  std::ranges::fill(lengths, 0);
  for_ranges(ranges, [&](int64_t i, int64_t, int64_t count) {
    int32_t& length = lengths[i / ranges.dim(1)];
    length = to_int32(length + count, "the number of an example's rows,");
  });
}

template <class T>
void scatter(const Tensor&, const Tensor& ranges, In<T> dy, Out<T> dx, Call& call) {
  std::ranges::fill(dx, T(0));
  const int64_t row = call.out(0).shape().size_between(1, call.out(0).rank());
  const T* from = dy.data();
  for_ranges(ranges, [&](int64_t, int64_t first, int64_t count) {
    T* to = dx.data() + first * row;
    for (int64_t j = 0; j < count * row; ++j) to[j] += from[j];
    from += count * row;
  });
}

// Where each range begins, and the place of each row.
std::vector<int64_t> places(int64_t ranges, int64_t rows) {
  constexpr int64_t kPlace = sizeof(int64_t);
  return {kPlace * (ranges + 1), kPlace * rows};
}
std::vector<int64_t> gpu_workspace(const NoArgs&, const Call& c) {
  return c.wants(0) ? places(c.in(1).size() / 2, c.out(0).dim(0)) : std::vector<int64_t>();
}
std::vector<int64_t> gradient_gpu_workspace(const NoArgs&, const Call& c) {
  return places(c.in(1).size() / 2, c.in(2).dim(0));
}

REGISTER(gather_ranges) {
  return op("GatherRanges")
      .doc("Rows of a tensor by ranges, one after the other.")
      .input("DATA", "[R, ...] of any type")
      .any_type()
      .input("RANGES", "[N, K, 2], the first row and the number of rows of each range")
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[rows of all ranges, ...]")
      .any_type()
      .output("LENGTHS", "[N], how many rows each example has, int32")
      .types({DType::int32})
      .optional()
      .gpu_workspace(gpu_workspace)
      .shape(shape)
      .cpu(gather)
      .example({"DATA=5,2", "RANGES=int32,2,2,2:0,2,4,1,1,3,0,0"})
      .example({"DATA=3", "RANGES=int64,1,1,2:0,3"})
      .example({"DATA=2,2", "RANGES=int32,0,1,2"})
      .derivative("DATA", [](Formula& f) {
        return f.op("GatherRangesGradient", {f.x("DATA"), f.x("RANGES"), f.dy("OUTPUT")});
      });
}

REGISTER(gather_ranges_gradient) {
  return op("GatherRangesGradient")
      .own()
      .doc("Gradient of GatherRanges: adds rows where they came from.")
      .input("DATA", "[R, ...]; its values are not read")
      .any_type()
      .shape_only()
      .input("RANGES", "[N, K, 2]")
      .types({DType::int32, DType::int64})
      .input("d_OUTPUT", "[rows of all ranges, ...]")
      .output("d_DATA", "as DATA")
      .gpu_workspace(gradient_gpu_workspace)
      .shape(gradient_shape)
      .flops(flops_per_input(1, 2))
      .cpu(scatter<float>, scatter<double>)
      .derivative("DATA", [](Formula&) { return Gradient::none(); })
      .derivative("d_OUTPUT", [](Formula& f) {
        return f.ops("GatherRanges", {f.dy("d_DATA"), f.x("RANGES")}, {}, {true, false})[0];
      });
}

}  // namespace
}  // namespace stepnet::cpu_gather_ranges
