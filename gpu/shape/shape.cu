// CUDA kernels for Shape, Size and IsEmpty. Meaning: see operators/shape/shape.cc.
#include "operators/shape/shape.h"

#include "gpu/loops/write_integers.h"

namespace stepnet::gpu_shape {
namespace {

void write_shape(const ShapeArgs& args, Call& call) {
  const Shape& x = call.in(0).shape();
  if (args.axes.empty()) return gpu::write_integers(call, call.out(0), 0, x.dims(), "a size");
  std::vector<int64_t> sizes;
  for (const int64_t axis : args.axes) sizes.push_back(x[canonical_axis(axis, x.rank())]);
  gpu::write_integers(call, call.out(0), 0, sizes, "a size");
}

void write_size(Call& call) {
  const int64_t size = call.in(0).size();
  gpu::write_integers(call, call.out(0), 0, {&size, 1}, "the size");
}

REGISTER(shape_cuda) { return cuda<ShapeArgs>("Shape", write_shape); }
REGISTER(size_cuda) { return cuda("Size", write_size); }

void write_is_empty(Call& call) {
  const bool empty = call.in(0).size() == 0;
  const gpu::Out<bool> to = gpu::out_span<bool>(call.out(0));
  gpu::each(call, 1, [=] __device__(size_t) { to[0] = empty; });
}

REGISTER(is_empty_cuda) { return cuda("IsEmpty", write_is_empty); }

}  // namespace
}  // namespace stepnet::gpu_shape
