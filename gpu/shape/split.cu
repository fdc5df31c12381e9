// CUDA kernels for Split and SplitByRows. Meaning and derivatives: see operators/shape/split.cc.
#include "operators/shape/split.h"

#include "gpu/loops/parts.h"
#include "operators/shape/concat.h"

namespace stepnet::gpu_split {
namespace {

bool wants_all(const Call& call) {
  for (int i = 0; i < call.outputs(); ++i)
    if (!call.wants(i)) return false;
  return true;
}

// Sizes that are an input are those of the outputs, as far as they are there.
void split(const SplitArgs& args, Call& call) {
  const Tensor& x = call.in(0);
  const int axis = concat_axis(args, x.rank());
  std::vector<int64_t> sizes;
  if (!call.has(1)) {
    sizes = part_sizes(args, x.shape(), nullptr, call.outputs());
  } else if (wants_all(call)) {
    for (int i = 0; i < call.outputs(); ++i) sizes.push_back(part_size(args, call.out(i).shape(), axis));
  } else {
    const Tensor given = copied_to(call.in(1), {});
    sizes = part_sizes(args, x.shape(), &given, call.outputs());
  }
  gpu::PartsMove move(call, x, axis, gpu::PartsMove::cut);
  for (int i = 0; i < call.outputs(); ++i)
    move.add(call.wants(i) ? &call.out(i) : nullptr, sizes[static_cast<size_t>(i)]);
  move.finish();
}

REGISTER(split_cuda) { return cuda<SplitArgs>("Split", split); }

void split_by_rows(const ConcatArgs& args, Call& call) {
  gpu::PartsMove move(call, call.in(0), concat_axis(args, call.in(0).rank()), gpu::PartsMove::cut);
  for (int i = 1; i < call.inputs(); ++i) move.add(call.wants(i - 1) ? &call.out(i - 1) : nullptr, call.in(i).dim(0));
  move.finish();
}

REGISTER(split_by_rows_cuda) { return cuda<ConcatArgs>("SplitByRows", split_by_rows); }

}  // namespace
}  // namespace stepnet::gpu_split
