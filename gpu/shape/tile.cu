// CUDA kernels for Tile and TileGradient. Meaning and derivative: see operators/shape/tile.cc. How many tiles there
// are, and along which axis, is known from the shapes.
#include "operators/shape/tile.h"

#include "gpu/loops/by_width.h"
#include "gpu/loops/reduce.h"
#include "stepnet/half.h"

namespace stepnet::gpu_tile {
namespace {

// [outer, tiles, inner]: one tensor's shape, with the tiles that the other has beside it.
gpu::Axis tiles_between(const Shape& one, const Shape& tiled) {
  int axis = 0;
  while (axis < one.rank() && one[axis] == tiled[axis]) ++axis;
  if (axis == one.rank()) return {1, 1, one.size()};
  return {one.size_between(0, axis), tiled[axis] / one[axis], one.size_between(axis, one.rank())};
}

// Elements are copied as they are, whatever their type.
template <class T>
void copy_tiles(Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  if (y.size() == 0) return;
  const gpu::Axis axis = tiles_between(x.shape(), y.shape());
  const auto tiles = static_cast<size_t>(axis.count), inner = static_cast<size_t>(axis.inner);
  const auto from = reinterpret_cast<const T*>(x.raw());
  const auto to = reinterpret_cast<T*>(y.raw());
  const gpu::Divider rows(tiles * inner), places(inner);
  gpu::each(call, static_cast<size_t>(y.size()), [=] __device__(size_t i) {
    const auto [row, place] = rows.split(i);
    to[i] = from[row * inner + places.split(place).remainder];
  });
}

void tile(Call& call) {
  gpu::by_width(call.in(0), [&](auto element) { copy_tiles<decltype(element)>(call); });
}

template <class T>
void sum_tiles(Call& call) {
  const gpu::In<T> dy = gpu::in_span<T>(call.in(0));
  const gpu::Out<T> dx = gpu::out_span<T>(call.out(0));
  if (dx.size == 0) return;
  const gpu::Axis axis = tiles_between(call.out(0).shape(), call.in(0).shape());
  const auto tiles = static_cast<size_t>(axis.count), inner = static_cast<size_t>(axis.inner);
  gpu::reduce(
      call, axis, 0.0,
      [=] __device__(size_t o, size_t t, size_t i) { return static_cast<double>(dy[(o * tiles + t) * inner + i]); },
      std::plus<double>(), [=] __device__(size_t o, size_t i, double sum) { dx[o * inner + i] = static_cast<T>(sum); });
}

void gradient(Call& call) {
  if (with_half(call.out(0).dtype(), [&](auto zero) { sum_tiles<decltype(zero)>(call); })) return;
  if (call.out(0).dtype() == DType::float64) return sum_tiles<double>(call);
  sum_tiles<float>(call);
}

REGISTER(tile_cuda) { return cuda<TileArgs>("Tile", tile); }
REGISTER(tile_gradient_cuda) { return cuda<TileArgs>("TileGradient", gradient); }

}  // namespace
}  // namespace stepnet::gpu_tile
