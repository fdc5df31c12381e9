// CUDA kernel for ResizeLike. Meaning and derivative: see operators/shape/resize_like.cc.
#include "gpu/loops/copy_elements.h"

namespace stepnet::gpu_resize_like {
namespace {

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

REGISTER(resize_like_cuda) { return cuda("ResizeLike", copy); }

}  // namespace
}  // namespace stepnet::gpu_resize_like
