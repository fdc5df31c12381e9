// Tile: Y = `tiles` copies of X, one after the other along dimension `axis`.
//
// dX = TileGradient(dY), the sum of the copies' gradients, whose own derivative is Tile. Backward reads nothing.

#include <algorithm>

#include "core/parallel.h"
#include "operators/axis_rows.h"
#include "operators/copy_elements.h"

namespace stepnet {
namespace {

struct TileArgs {
  int64_t tiles = 1;
  int32_t axis = 0;
};

void infer(const TileArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  const int axis = canonical_axis(args.axis, x.rank());
  int64_t size = 0;
  require(!__builtin_mul_overflow(x[axis], args.tiles, &size), "{} tiles of {} are more than 64 bits can count",
          args.tiles, x);
  call.set(0, call.dtype(0), x.with(axis, size));
}

void infer_gradient(const TileArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& dy = call.shape(0);
  const int axis = canonical_axis(args.axis, dy.rank());
  require(dy[axis] % args.tiles == 0, "dimension {} of {} has size {}, which is not {} tiles of one size", axis, dy,
          dy[axis], args.tiles);
  call.set(0, call.dtype(0), dy.with(axis, dy[axis] / args.tiles));
}

void tile(const TileArgs& args, Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  if (y.size() == 0) return;
  const Rows rows = rows_of(args, x.shape());
  const double nanoseconds = 3 + 0.1 * static_cast<double>(rows.size) * static_cast<double>(dtype_size(x.dtype()));
  parallel_for(rows.count * args.tiles, nanoseconds, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copy_elements(x, t / args.tiles * rows.size, y, t * rows.size, rows.size);
  });
}

template <class T>
void sum_tiles(const TileArgs& args, In<T> dy, Out<T> dx, Call& call) {
  if (dx.empty()) return;
  const Rows rows = rows_of(args, call.out(0).shape());
  const double nanoseconds = 0.3 * static_cast<double>(rows.size) * static_cast<double>(args.tiles);
  parallel_for(rows.count, nanoseconds, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* to = dx.data() + r * rows.size;
      std::fill_n(to, rows.size, T(0));
      for (int64_t t = 0; t < args.tiles; ++t) {
        const T* from = dy.data() + (r * args.tiles + t) * rows.size;
        for (int64_t j = 0; j < rows.size; ++j) to[j] += from[j];
      }
    }
  });
}

OpBuilder<TileArgs>& declare(OpBuilder<TileArgs>& spec) {
  return spec.arg("tiles", &TileArgs::tiles, int64_t{1}, "how many copies", at_least(1))
      .arg("axis", &TileArgs::axis, 0, "the dimension along which they stand");
}

REGISTER(tile) {
  auto spec = op<TileArgs>("Tile");
  return declare(spec)
      .doc("Copies of a tensor, one after the other along a dimension.")
      .input("X", "one dimension or more, of any type")
      .any_type()
      .output("Y", "the copies")
      .any_type()
      .shape(infer)
      .rowwise(leading_rows<TileArgs>)
      .cpu(tile)
      .derivative("X", [](Formula& f) { return f.op("TileGradient", {f.dy("Y")}, f.forward_args()); });
}

REGISTER(tile_gradient) {
  auto spec = op<TileArgs>("TileGradient");
  return declare(spec)
      .doc("Gradient of Tile: the sum of the copies' gradients.")
      .input("dY", "the gradients of the copies")
      .output("dX", "their sum")
      .shape(infer_gradient)
      .rowwise(leading_rows<TileArgs>)
      .cpu(sum_tiles<float>, sum_tiles<double>)
      .derivative("dY", [](Formula& f) { return f.op("Tile", {f.dy("dX")}, f.forward_args()); });
}

}  // namespace
}  // namespace stepnet
