// Tile: Y = `tiles` copies of X, one after the other along dimension `axis`.
//
// dX = TileGradient(dY), the sum of the copies' gradients, whose own derivative is Tile. Backward reads the number of
// copies and the axis, where they are inputs.

#include "operators/shape/tile.h"

#include <algorithm>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/axis_rows.h"
#include "operators/loops/copy_elements.h"

namespace stepnet::cpu_tile {
namespace {

// The tensor's one integer.
int64_t read_integer(const Tensor& value, const char* what) {
  require(value.size() == 1, "{} must be one integer, but is {}", what, value);
  return value.dtype() == DType::int32 ? value.data<int32_t>()[0] : value.data<int64_t>()[0];
}

// How many copies, and where. Nothing while an input that says so has no value yet.
struct Tiles {
  int64_t count = 1;
  int axis = 0;
};

Tiles tiles_of(const TileArgs& args, int rank, const Tensor* tiles, const Tensor* axis) {
  const int64_t count = tiles ? read_integer(*tiles, "the number of tiles") : args.tiles;
  require(count >= 1, "the number of tiles must be at least 1, but is {}", count);
  return {count, canonical_axis(axis ? read_integer(*axis, "the axis") : args.axis, rank)};
}

std::optional<Tiles> known_tiles(const TileArgs& args, const ShapeCall& call) {
  if (!call.known(0) || (call.has(1) && !call.value(1)) || (call.has(2) && !call.value(2))) return std::nullopt;
  return tiles_of(args, call.shape(0).rank(), call.value(1), call.value(2));
}

Tiles tiles_of(const TileArgs& args, const Call& call) {
  return tiles_of(args, call.in(0).rank(), call.has(1) ? &call.in(1) : nullptr, call.has(2) ? &call.in(2) : nullptr);
}

AxisRows rows_at(int axis, const Shape& x) { return {x.size_between(0, axis), x.size_between(axis, x.rank())}; }

void infer(const TileArgs& args, ShapeCall& call) {
  const std::optional<Tiles> tiles = known_tiles(args, call);
  if (!tiles) return;
  const Shape& x = call.shape(0);
  int64_t size = 0;
  require(!__builtin_mul_overflow(x[tiles->axis], tiles->count, &size),
          "{} tiles of {} are more than 64 bits can count", tiles->count, x);
  call.set(0, call.dtype(0), x.with(tiles->axis, size));
}

void infer_gradient(const TileArgs& args, ShapeCall& call) {
  const std::optional<Tiles> tiles = known_tiles(args, call);
  if (!tiles) return;
  const Shape& dy = call.shape(0);
  const int64_t size = dy[tiles->axis];
  require(size % tiles->count == 0, "dimension {} of {} has size {}, which is not {} tiles of one size", tiles->axis,
          dy, size, tiles->count);
  call.set(0, call.dtype(0), dy.with(tiles->axis, size / tiles->count));
}

void tile(const TileArgs& args, Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  if (y.size() == 0) return;
  const Tiles tiles = tiles_of(args, call);
  const AxisRows rows = rows_at(tiles.axis, x.shape());
  const double nanoseconds = 3 + 0.1 * static_cast<double>(rows.size) * static_cast<double>(dtype_size(x.dtype()));
  parallel_for(rows.count * tiles.count, nanoseconds, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy_elements(x, t / tiles.count * rows.size, y, t * rows.size, rows.size);
  });
}

template <class T>
void sum_tiles(const TileArgs& args, Call& call) {
  const Out<T> dx = call.out_span<T>(0);
  if (dx.empty()) return;
  const T* dy = call.in(0).data<T>();
  const Tiles tiles = tiles_of(args, call);
  const AxisRows rows = rows_at(tiles.axis, call.out(0).shape());
  const double nanoseconds = 0.3 * static_cast<double>(rows.size) * static_cast<double>(tiles.count);
  parallel_for(rows.count, nanoseconds, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* to = dx.data() + r * rows.size;
      std::fill_n(to, rows.size, T(0));
      for (int64_t t = 0; t < tiles.count; ++t) {
        const T* from = dy + (r * tiles.count + t) * rows.size;
        for (int64_t j = 0; j < rows.size; ++j) to[j] += from[j];
      }
    }
  });
}

// Dimensions before the axis, where that is no input.
int fixed_leading_rows(const TileArgs& args, const ShapeCall& call) {
  return call.has(2) ? 0 : leading_rows(args, call);
}

OpBuilder<TileArgs>& declare_tiles(OpBuilder<TileArgs>& spec) {
  return spec
      .arg("tiles", &TileArgs::tiles, int64_t{1}, "how many copies; not read if there is an input for it", at_least(1))
      .arg("axis", &TileArgs::axis, 0, "the dimension along which they stand; not read if there is an input for it")
      .input("tiles", "how many copies: one integer, instead of the argument")
      .types({DType::int32, DType::int64})
      .optional()
      .input("axis", "the dimension along which they stand: one integer, instead of the argument")
      .types({DType::int32, DType::int64})
      .optional();
}

Gradient by(Formula& f, const char* type, Value dy) { return f.op(type, {dy, f.x_at(1), f.x_at(2)}, f.forward_args()); }

REGISTER(tile) {
  auto spec = op<TileArgs>("Tile");
  spec.doc("Copies of a tensor, one after the other along a dimension.")
      .input("X", "one dimension or more, of any type")
      .any_type();
  return declare_tiles(spec)
      .output("Y", "the copies")
      .any_type()
      .shape(infer)
      .rowwise(fixed_leading_rows)
      .cpu(tile)
      .example({"X=2,3"}, {"tiles=2"})
      .example({"X=2,3"}, {"tiles=3", "axis=1"})
      .example({"X=2,3", "tiles=int32,1:2", "axis=int64:-1"})
      .example({"X=2", "tiles=int64:3"})
      .example({"X=2,0"}, {"tiles=2", "axis=-1"})
      .derivative("X", [](Formula& f) { return by(f, "TileGradient", f.dy("Y")); });
}

REGISTER(tile_gradient) {
  auto spec = op<TileArgs>("TileGradient");
  spec.doc("Gradient of Tile: the sum of the copies' gradients.").input("dY", "the gradients of the copies");
  return declare_tiles(spec)
      .output("dX", "their sum")
      .shape(infer_gradient)
      .rowwise(fixed_leading_rows)
      .flops(
          [](const auto&, const ShapeCall& c) { return input_size(c, 0) == output_size(c, 0) ? 0 : input_size(c, 0); })
      .cpu_for<float>(sum_tiles<float>)
      .cpu_for<double>(sum_tiles<double>)
      .derivative("dY", [](Formula& f) { return by(f, "Tile", f.dy("dX")); });
}

}  // namespace
}  // namespace stepnet::cpu_tile
