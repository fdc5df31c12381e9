// CUDA kernels for Slice and its gradient. Meaning and derivative: see operators/shape/slice.cc.
#include "operators/shape/slice.h"

#include "gpu/loops/copy_elements.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_slice {
namespace {

// The range, whose place may be known on the device only.
struct Place {
  int64_t begin = 0;
  int64_t count = 0, size = 0;  // of the range, and of the dimension it is cut from
  gpu::Indices starts;
  int axis = 0;

  __device__ int64_t first(const gpu::Bounds& bounds) const {
    if (starts.size == 0) return begin;
    const int64_t start = starts[static_cast<size_t>(axis)];
    const int64_t at = start < 0 ? size + start + 1 : start < size ? start : size;
    return bounds.inside(at, size - count + 1) ? at : 0;
  }
};

// The dimension in which the whole and its part differ; -1 if there is none.
int cut_axis(const Shape& whole, const Shape& part) {
  require(whole.rank() == part.rank(), "{} is no slice of {}", part, whole);
  int axis = -1;
  for (int i = 0; i < whole.rank(); ++i) {
    if (part[i] == whole[i]) continue;
    require(axis < 0 && part[i] < whole[i], "{} is no slice of {}", part, whole);
    axis = i;
  }
  return axis;
}

// Starts and ends are inputs 1 and 2, if they are `given`, or arguments.
Place place_of(const SliceArgs& args, const Call& call, bool given, const Shape& whole, const Shape& part, int axis) {
  Place place{.starts = gpu::Indices(given ? call.in(1) : Tensor::empty(DType::int64, Shape{0}))};
  place.axis = axis;
  place.size = whole[axis];
  place.count = part[axis];
  if (given)
    require(axis < place.starts.size, "there is no start for dimension {}", axis);
  else
    place.begin = cut_range(whole, args.starts, args.ends).begin;
  return place;
}

template <class Unit>
void cut(const Call& call, const Place& place, const Unit* whole, Unit* part, size_t outer, size_t inner) {
  const gpu::Bounds bounds = gpu::bounds(call, "a start");
  const size_t size = static_cast<size_t>(place.count) * inner, row = static_cast<size_t>(place.size) * inner;
  const gpu::Divider rows(size);
  gpu::each(call, outer * size, [=] __device__(size_t i) {
    const auto [o, column] = rows.split(i);
    part[i] = whole[o * row + static_cast<size_t>(place.first(bounds)) * inner + column];
  });
}

template <class Unit>
void put(const Call& call, const Place& place, Unit* whole, const Unit* part, size_t outer, size_t inner) {
  const gpu::Bounds bounds = gpu::bounds(call, "a start");
  const size_t size = static_cast<size_t>(place.count) * inner, row = static_cast<size_t>(place.size) * inner;
  const gpu::Divider rows(row);
  gpu::each(call, outer * row, [=] __device__(size_t i) {
    const auto [o, column] = rows.split(i);
    const size_t begin = static_cast<size_t>(place.first(bounds)) * inner;
    const bool there = column >= begin && column - begin < size;
    whole[i] = there ? part[o * size + column - begin] : Unit{};
  });
}

size_t inner_bytes(const Tensor& t, int axis) { return gpu::width_of(t, t.shape().size_between(axis + 1, t.rank())); }

void slice(const SliceArgs& args, Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  const int axis = cut_axis(x.shape(), y.shape());
  if (axis < 0) return copy_values(x, y);
  const Place place = place_of(args, call, call.has(1), x.shape(), y.shape(), axis);
  const std::byte* from = gpu::bytes_of(x);
  std::byte* to = gpu::bytes_of(y);
  const size_t outer = static_cast<size_t>(x.shape().size_between(0, axis)), inner = inner_bytes(x, axis);
  gpu::with_unit(inner | gpu::address(from) | gpu::address(to), [&](auto unit) {
    using Unit = decltype(unit);
    cut(call, place, reinterpret_cast<const Unit*>(from), reinterpret_cast<Unit*>(to), outer, inner / sizeof(Unit));
  });
}

void slice_gradient(const SliceArgs& args, Call& call) {
  const Tensor& dy = call.in(call.inputs() - 1);
  Tensor& dx = call.out(0);
  const int axis = cut_axis(dx.shape(), dy.shape());
  if (axis < 0) return copy_values(dy, dx);
  const Place place = place_of(args, call, call.inputs() == 4, dx.shape(), dy.shape(), axis);
  const std::byte* from = gpu::bytes_of(dy);
  std::byte* to = gpu::bytes_of(dx);
  const size_t outer = static_cast<size_t>(dx.shape().size_between(0, axis)), inner = inner_bytes(dx, axis);
  gpu::with_unit(inner | gpu::address(from) | gpu::address(to), [&](auto unit) {
    using Unit = decltype(unit);
    put(call, place, reinterpret_cast<Unit*>(to), reinterpret_cast<const Unit*>(from), outer, inner / sizeof(Unit));
  });
}

REGISTER(slice_cuda) { return cuda<SliceArgs>("Slice", slice); }
REGISTER(slice_gradient_cuda) { return cuda<SliceArgs>("SliceGradient", slice_gradient); }

}  // namespace
}  // namespace stepnet::gpu_slice
