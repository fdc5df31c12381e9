// CUDA kernel for SplitByRows. Meaning and derivative: see operators/shape/split_by_rows.cc.
#include "gpu/loops/parts.h"
#include "operators/shape/concat.h"

namespace stepnet::gpu_split_by_rows {
namespace {

void split(const ConcatArgs& args, Call& call) {
  gpu::PartsMove move(call, call.in(0), concat_axis(args, call.in(0).rank()), gpu::PartsMove::cut);
  for (int i = 1; i < call.inputs(); ++i) move.add(call.wants(i - 1) ? &call.out(i - 1) : nullptr, call.in(i).dim(0));
  move.finish();
}

REGISTER(split_by_rows_cuda) { return cuda<ConcatArgs>("SplitByRows", split); }

}  // namespace
}  // namespace stepnet::gpu_split_by_rows
