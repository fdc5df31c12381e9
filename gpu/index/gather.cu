// CUDA kernel for Gather. Meaning and derivative: see operators/index/gather.cc.
#include "operators/index/gather.h"

#include "gpu/loops/gathered_rows.h"

namespace stepnet::gpu_gather {
namespace {

void gather(const GatherArgs& args, Call& call) { gpu::gather_rows(call, args, call.in(0), call.in(1), call.out(0)); }

REGISTER(gather_cuda) { return cuda<GatherArgs>("Gather", gather); }

}  // namespace
}  // namespace stepnet::gpu_gather
