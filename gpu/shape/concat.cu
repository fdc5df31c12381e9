// CUDA kernels for Concat and SplitLike. Meaning and derivatives: see operators/shape/concat.cc.
#include "operators/shape/concat.h"

#include "gpu/loops/parts.h"
#include "gpu/loops/write_integers.h"

namespace stepnet::gpu_concat {
namespace {

void write_sizes(const ConcatArgs& args, Call& call, int axis) {
  gpu::FewIntegers few;
  for (int first = 0; first < call.inputs(); first += gpu::FewIntegers::kMost) {
    const int count = std::min<int>(gpu::FewIntegers::kMost, call.inputs() - first);
    for (int i = 0; i < count; ++i) few.values[i] = part_size(args, call.in(first + i).shape(), axis);
    gpu::write_integers(call, call.out(1), static_cast<size_t>(first), {few.values, static_cast<size_t>(count)},
                        "the size of a part,");
  }
}

void concat(const ConcatArgs& args, Call& call) {
  const int axis = concat_axis(args, call.in(0).rank(), args.add_axis);
  if (call.wants(1)) write_sizes(args, call, axis);
  if (!call.wants(0)) return;
  gpu::PartsMove move(call, call.out(0), axis, gpu::PartsMove::join);
  for (int i = 0; i < call.inputs(); ++i) move.add(&call.in(i), part_size(args, call.in(i).shape(), axis));
  move.finish();
}

void split_like(const ConcatArgs& args, Call& call) {
  const int axis = concat_axis(args, call.in(1).rank(), args.add_axis);
  gpu::PartsMove move(call, call.in(0), axis, gpu::PartsMove::cut);
  for (int i = 1; i < call.inputs(); ++i)
    move.add(call.wants(i - 1) ? &call.out(i - 1) : nullptr, part_size(args, call.in(i).shape(), axis));
  move.finish();
}

REGISTER(concat_cuda) { return cuda<ConcatArgs>("Concat", concat); }
REGISTER(split_like_cuda) { return cuda<ConcatArgs>("SplitLike", split_like); }

}  // namespace
}  // namespace stepnet::gpu_concat
